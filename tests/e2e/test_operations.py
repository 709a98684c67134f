"""What operators see and are woken by: a real Prometheus over real processes, and the way out of each alert."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.exporter.hindsight_source import read_backlog
from consumer.exporter.snapshot import OperationStatus
from demo.services import Service
from tests.support import kafka_jvm
from tests.support.installation import Installation, open_installation, wait_until_true
from tests.support.kafka import Broker, Kind
from tests.support.monitored_stack import MonitoredStack, faster, faster_rules, monitored_stack, scrape, write
from tests.support.paperclip import Paperclip
from tests.support.paperclip_company import PaperclipCompany
from tests.support.prometheus import Prometheus, promtool
from tests.unit.deploy.promql import ROOT, alerts, rules, selected

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]

BEN, ISSUE = "eeae0a0c-0292-4695-8619-c5bb30200687", "84f04695-b2f5-472e-9096-5cfbd079d332"
BOARD = json.loads((ROOT / "deploy/grafana/dashboards/paperclip-memory.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
P = "paperclip_memory_"


@pytest.fixture(scope="module")
def here(
    broker: Broker, hindsight: Hindsight, paperclip: Paperclip, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredStack]:
    """Everything runs, and has handled the recording."""
    home = tmp_path_factory.mktemp("operations")
    company = PaperclipCompany(paperclip)
    issue = company.issue("Release notes", company.agent("Ada"))
    with open_installation(broker, hindsight, home) as installation:
        follow = {**company.settings, "RELAY_COMPANIES": company.id, "RELAY_START": "beginning"}
        with monitored_stack(installation, home, follow) as running:
            company.say(issue, "Mention the token expiry.")
            installation.publish(installation.company.events)
            installation.wait_consumed()
            yield running
    company.close()


def notes(installation: Installation, count: int) -> list[dict[str, Any]]:
    return [installation.company.said(f"Note {n} of {count}.", agent=BEN, issue=ISSUE) for n in range(count)]


def lag_of(here: MonitoredStack, group: str) -> float | None:
    return here.prometheus.value(f'group:{P}group_lag_records:sum{{group="{here.installation.prefix}.{group}"}}')


def test_promtool_finds_nothing_wrong_with_what_is_served(here: MonitoredStack) -> None:
    for name, text in here.scrapes().items():
        checked = promtool("check", "metrics", given=text)
        assert (name, checked.returncode, checked.stdout, checked.stderr) == (name, 0, "", "")


def test_every_rule_and_every_panel_gets_an_answer(here: MonitoredStack) -> None:
    asked = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for panel in PANELS:
        for target in panel["targets"]:
            asked[f"{panel['title']}: {target['legendFormat']}"] = target["expr"].replace("$__rate_interval", "5s")
    for name, rule in alerts().items():  # an alert that answers, fires: so what it is made of must be there
        asked |= {f"{name}: {each.metric}": each.metric for each in selected(rule["expr"])}
    silent = dict(asked)

    def all_answer() -> bool:
        for name, expression in list(silent.items()):
            if here.prometheus.query(faster(expression)):
                del silent[name]
        return not silent

    wait_until_true(f"these answer: {silent}", all_answer, 60)
    assert len(asked) > 80
    assert here.prometheus.up() == 5


def test_two_exporters_do_not_double_a_sum(here: MonitoredStack) -> None:
    wait_until_true("nothing waits", lambda: lag_of(here, "retain") == 0)
    here.processes["worker"].server.stop()
    both = f'sum({P}group_lag_records{{group="{here.installation.prefix}.retain"}})'
    try:
        here.installation.publish(notes(here.installation, 3))
        wait_until_true("each exporter reports the lag", lambda: here.prometheus.value(both) == 6)
        wait_until_true("the rule counts it once", lambda: lag_of(here, "retain") == 3)
    finally:
        here.processes["worker"].server.start()
    wait_until_true("it is handled", lambda: lag_of(here, "retain") == 0)


def test_queue_depth_and_backlog_are_what_hindsight_says(here: MonitoredStack) -> None:
    """Both say it of a moment, so it is compared until both speak of the same one."""

    def same() -> bool:
        said = read_backlog(httpx.get(f"{here.installation.hindsight.url}/metrics", timeout=10).text)
        assert said is not None
        shown = {
            status: here.prometheus.value(f'status:{P}hindsight_queue_depth:max{{status="{status}"}}')
            for status in OperationStatus
        }
        waiting = here.prometheus.value(f"cluster:{P}hindsight_consolidation_backlog:max")
        told = {status: said.total(status) for status in OperationStatus}
        return (shown, waiting) == (told, said.consolidation)

    wait_until_true("they agree", same)


def test_status_shows_the_same(here: MonitoredStack) -> None:
    here.installation.wait_consumed()
    status = here.status()
    recall, retain = status["groups"]
    assert (retain["group"], retain["members"], retain["state"]) == (f"{here.installation.prefix}.retain", 1, "stable")
    assert (recall["lag_records"], retain["lag_records"], retain["lag_seconds"]) == (0, 0, 0)
    assert len(retain["partitions"]) == 8
    assert retain["last_commit"] is not None
    assert status["hindsight"]["banks_known"] >= 1
    assert status["silent"] == {}
    shown = here.run("status")
    assert f"{here.installation.prefix}.retain: 1 member (stable), nothing waits, last commit" in shown
    assert "✗ kafka" in here.run("status", expect=1, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")


def test_a_stopped_group_shows_its_lag_and_pages(here: MonitoredStack) -> None:
    """MemoryEventsDelayed and MemoryGroupEmpty; their runbooks say: start the workers."""
    here.processes["worker"].server.stop()
    try:
        values = [json.dumps(event).encode() for event in notes(here.installation, 4)]
        topic = here.installation.topics["issue_comments"]
        asyncio.run(write(here.installation.broker.bootstrap_servers, topic, values, time.time() - 400))
        here.fires("MemoryGroupEmpty")
        here.fires("MemoryEventsDelayed")
        behind = here.prometheus.value(f'group:{P}group_lag_seconds:max{{group="{here.installation.prefix}.retain"}}')
        assert behind is not None
        assert 400 <= behind < 500
        assert lag_of(here, "retain") == 4
        retain = here.status()["groups"][1]
        assert (retain["members"], retain["state"], retain["lag_records"]) == (0, "empty", 4)
    finally:
        here.processes["worker"].server.start()
    here.ends("MemoryGroupEmpty", "MemoryEventsDelayed", "MemoryGroupStalled")


def test_dead_letters_open_a_ticket(here: MonitoredStack) -> None:
    """The runbook says: list them; what cannot be repaired needs nothing."""
    topic = here.installation.topics["issue_comments"]
    asyncio.run(write(here.installation.broker.bootstrap_servers, topic, [b"no event"], time.time()))
    here.fires("MemoryDeadLetters")
    listed = json.loads(here.run("dead-letters", "list", "--reason", "undecodable", "--json"))
    assert listed["by_reason"] == {"undecodable": 1}
    depth = f'{P}dead_letter_depth_records{{topic="{here.installation.topics["dead_letters"]}"}}'
    wait_until_true("the exporter counts it", lambda: here.prometheus.value(f"max({depth})") == 1)
    assert here.status()["dead_letters"] == {"by_reason": {"undecodable": 1}, "redriven": 0}
    here.ends("MemoryDeadLetters")


def test_an_open_breaker_and_a_queue_that_does_not_drain(here: MonitoredStack) -> None:
    """Hindsight goes away, and comes back without workers of its own; the runbooks say: start it, and start them.

    It comes back without the backlog in its metrics too: the exporters take it from `/stats` then.
    """
    server = here.installation.hindsight.server
    usual = server.env
    assert usual is not None
    server.stop()
    try:
        here.installation.publish(notes(here.installation, 3))
        here.fires("MemoryBreakerOpen")
        wait_until_true("its source is silent", lambda: here.prometheus.value(f"max({P}hindsight_queue_depth)") is None)
        assert here.prometheus.value(f'max({P}collect_success{{source="hindsight"}})') == 0
        server.env = {
            **usual,
            "HINDSIGHT_API_WORKER_ENABLED": "false",
            "HINDSIGHT_API_METRICS_BACKLOG_ENABLED": "false",
            "HINDSIGHT_API_BANK_STATS_CACHE_TTL_SECONDS": "0",
        }
        server.start()
        here.ends("MemoryBreakerOpen")
        here.fires("HindsightQueueNotDraining")
        queue = here.status()["hindsight"]
        assert (queue["origin"], queue["pending"] > 0) == ("/stats", True)
        told = here.installation.get(f"{here.installation.company.bank(BEN).replace(':', '%3A')}/stats")
        assert (
            here.prometheus.value(f'status:{P}hindsight_queue_depth:max{{status="pending"}}')
            >= (told["pending_operations"])
        )
        assert here.prometheus.value(f"cluster:{P}hindsight_oldest_pending_seconds:max > 0")
    finally:
        server.stop()
        server.env = usual
        server.start()
    here.ends("HindsightQueueNotDraining")


def test_a_dead_kafka_is_unobserved_and_not_0(hindsight: Hindsight, tmp_path: Path) -> None:
    """MemoryLagUnobserved; its runbook says: start it."""
    if not kafka_jvm.available():
        pytest.fail("needs an Apache Kafka that it can stop: a JVM and Maven")
    with (
        kafka_jvm.JvmKafka(tmp_path) as kafka,
        open_installation(Broker(kafka.bootstrap_servers, Kind.JVM), hindsight, tmp_path) as installation,
    ):
        installation.publish(notes(installation, 2))
        exporter = Service("exporter", installation.settings | {"EXPORTER_INTERVAL": "1"}, tmp_path / "exporter.log")
        targets = {"paperclip-memory": [exporter.address]}
        with exporter, Prometheus(tmp_path, targets, faster_rules(tmp_path)) as prometheus:
            records = f"sum({P}group_lag_records)"
            wait_until_true("the lag is seen", lambda: prometheus.value(records) == 2)
            kafka.kill()
            wait_until_true("nothing is said of lag", lambda: prometheus.query(records) == [])
            wait_until_true("it pages", lambda: "MemoryLagUnobserved" in prometheus.firing())
            assert not re.search(rf"^{P}(group_|log_end|dead_letter_depth)", scrape(exporter), re.MULTILINE)
            assert f'{P}collect_success{{source="kafka"}} 0.0' in scrape(exporter)
            assert f'{P}collect_success{{source="hindsight"}} 1.0' in scrape(exporter)
            kafka.start()
            wait_until_true("it is seen again", lambda: prometheus.value(records) == 2)
            wait_until_true("it ends", lambda: "MemoryLagUnobserved" not in prometheus.firing())
