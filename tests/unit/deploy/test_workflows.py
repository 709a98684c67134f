"""The workflows run existing targets, have few permissions, and pass two linters."""

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
def test_a_workflow_has_read_permission_only(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] <= 60
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_workflows_use_allowed_actions_at_released_tags(path: Path) -> None:
    used = {step["uses"] for step in steps(path) if "uses" in step}
    assert {action.split("@")[0] for action in used} <= ACTIONS
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", action.split("@")[1]) for action in used)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_workflows_run_existing_targets_and_files(path: Path) -> None:
    script = "\n".join(step.get("run", "") for step in steps(path))
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", script)) <= targets
    assert {"lint", "test", "e2e"} <= set(re.findall(r"\bmake ([a-z0-9-]+)", script))
    for path_used in re.findall(r"\b(?:deploy|requirements)/[\w./-]+", script):
        assert (ROOT / path_used).exists(), path_used


def test_dependabot_watches_existing_directories() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    holds = {"github-actions": ".github/workflows", "docker": "Dockerfile", "docker-compose": "docker-compose.yml"}
    for update in updates:
        directory = ROOT / update["directory"].lstrip("/")
        assert (directory / holds.get(update["package-ecosystem"], "fast.txt")).exists()


@pytest.mark.parametrize(
    ("schema", "path"),
    [("vendor.github-workflows", path) for path in PATHS] + [("vendor.dependabot", GITHUB / "dependabot.yml")],
    ids=lambda value: getattr(value, "stem", value),
)
def test_github_files_match_their_schemas(schema: str, path: Path) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", schema, str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_zizmor_accepts_the_workflows() -> None:
    command = [str(BIN / "zizmor"), "--offline", "--config", str(GITHUB / "zizmor.yml"), str(GITHUB)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
