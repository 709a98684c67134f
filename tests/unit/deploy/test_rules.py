"""Rules and alerts: their names exist, promtool accepts them, and each alert has a runbook."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from consumer.cli import app
from consumer.settings.model import Settings
from consumer.settings.types import variable
from tests.support.prometheus import promtool
from tests.unit.deploy.promql import PROMETHEUS, ROOT, alerts, rules, selected, series

RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = alerts()
CATALOGUE = {
    "page": {
        "MemoryEventsDelayed",
        "MemoryGroupStalled",
        "MemoryGroupEmpty",
        "MemoryLagUnobserved",
        "MemoryRecallSlow",
        "MemoryUpstreamRefused",
        "MemoryRelayBehind",
    },
    "ticket": {
        "MemoryDeadLetters",
        "MemoryHandlerErrors",
        "MemoryBreakerOpen",
        "MemoryRebalanceStorm",
        "MemoryKeyExpiring",
        "HindsightQueueNotDraining",
        "HindsightConsolidationStuck",
        "HindsightOperationsFailed",
    },
}


def test_every_alert_has_a_severity_and_a_test_file() -> None:
    severities = {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    assert severities == {name: severity for severity, names in CATALOGUE.items() for name in names}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_queries_existing_series_and_labels(rule: dict[str, Any]) -> None:
    labels_by_series = series()
    queries = selected(rule["expr"])
    assert queries
    for query in queries:
        assert query.metric in labels_by_series
        assert query.labels <= labels_by_series[query.metric]
    kept = {label for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]) for label in by.split(", ") if label}
    assert kept <= {label for query in queries for label in labels_by_series[query.metric]}


def test_promtool_accepts_rules_and_configuration() -> None:
    checked = promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_complete_runbook(alert: str) -> None:
    annotations = ALERTS[alert]["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"] == f"docs/runbooks/{alert}.md"
    text = (ROOT / annotations["runbook_url"]).read_text()
    assert text.startswith(f"# {alert}\n\nSeverity: {ALERTS[alert]['labels']['severity']}.")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["What it means", "What to look at", "How to fix it"]
    assert "```" in text.split("## What to look at")[1].split("## How to fix it")[0]
    assert f"[{alert}]({alert}.md)" in (RUNBOOKS / "README.md").read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_exactly_when_its_test_file_says(alert: str) -> None:
    path = PROMETHEUS / "tests" / f"{alert}.yml"
    tests = yaml.safe_load(path.read_text())["tests"]
    expected = [rule["exp_alerts"] for test in tests for rule in test["alert_rule_test"]]
    assert all(rule["alertname"] == alert for test in tests for rule in test["alert_rule_test"])
    assert any(expected)
    assert not all(expected)
    ran = promtool("test", "rules", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("alert", ["MemoryEventsDelayed", "HindsightQueueNotDraining"])
def test_promtool_rejects_a_changed_rule(alert: str, tmp_path: Path) -> None:
    """So the tests above can fail."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "rules").mkdir()
    for name in ("recording", "alerts"):
        text = (PROMETHEUS / "rules" / f"{name}.yml").read_text()
        wrong = text.replace("> 300", "> 3000").replace("[30m]) > 0", "[1m]) > 0")
        (tmp_path / "rules" / f"{name}.yml").write_text(wrong)
    path = tmp_path / "tests" / f"{alert}.yml"
    path.write_text((PROMETHEUS / "tests" / f"{alert}.yml").read_text())
    assert promtool("test", "rules", str(path)).returncode != 0


PAGES = sorted(RUNBOOKS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_runbooks_name_only_what_exists(page: Path) -> None:
    text = page.read_text()
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    groups = {group.name for group in app.registered_groups}
    for used in re.findall(r"(?<!-n )paperclip-memory ([a-z][a-z-]+)", text):
        assert used in commands | groups
    variables = {variable(name) for name in Settings.model_fields}
    assert set(re.findall(r"PAPERCLIP_MEMORY_[A-Z_]*[A-Z]", text)) <= variables
    labels_by_series = series()
    assert {
        name for name in re.findall(r"\b(?:\w+:)?paperclip_memory_\w+(?::\w+)?", text) if name not in labels_by_series
    } <= {
        "paperclip_memory_hindsight_api_key"  # a secret's file
    }
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), link


def test_the_delay_alert_inhibits_the_stalled_and_the_empty_alert() -> None:
    config = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    first = config["inhibit_rules"][0]
    assert first["source_matchers"] == ['alertname="MemoryEventsDelayed"']
    assert first["target_matchers"] == ['alertname=~"MemoryGroupStalled|MemoryGroupEmpty"']
    assert first["equal"] == ["group"]
    receivers = {receiver["name"] for receiver in config["receivers"]}
    assert receivers == set(CATALOGUE)
    alert_names = set(re.findall(r"\w*(?:Memory|Hindsight)[A-Z]\w+", (PROMETHEUS / "alertmanager.yml").read_text()))
    assert alert_names <= set(ALERTS)
