"""The workflows: what they run exists, they may do little, and two linters find nothing."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.deploy.promql import ROOT

GITHUB = ROOT / ".github"
PATHS = sorted((GITHUB / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent
ACTIONS = {"actions/checkout", "actions/setup-python"}


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_workflow_may_read_and_no_more(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] <= 60
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_actions_are_few_and_of_a_released_tag(path: Path) -> None:
    used = {step["uses"] for step in steps(path) if "uses" in step}
    assert {each.split("@")[0] for each in used} <= ACTIONS
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", each.split("@")[1]) for each in used)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_is_run_exists(path: Path) -> None:
    script = "\n".join(step.get("run", "") for step in steps(path))
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", script)) <= targets
    assert {"lint", "test", "e2e"} <= set(re.findall(r"\bmake ([a-z0-9-]+)", script))
    for named in re.findall(r"\b(?:deploy|requirements)/[\w./-]+", script):
        assert (ROOT / named).exists(), named


def test_what_is_watched_for_updates_exists() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    holds = {"github-actions": ".github/workflows", "docker": "Dockerfile", "docker-compose": "docker-compose.yml"}
    for update in updates:
        directory = ROOT / update["directory"].lstrip("/")
        assert (directory / holds.get(update["package-ecosystem"], "fast.txt")).exists()


@pytest.mark.parametrize(
    ("schema", "path"),
    [("vendor.github-workflows", path) for path in PATHS] + [("vendor.dependabot", GITHUB / "dependabot.yml")],
    ids=lambda each: getattr(each, "stem", each),
)
def test_files_fit_their_schemas(schema: str, path: Path) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", schema, str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_zizmor_finds_nothing() -> None:
    command = [str(BIN / "zizmor"), "--offline", "--config", str(GITHUB / "zizmor.yml"), str(GITHUB)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
