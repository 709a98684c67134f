"""The README's "Run it", pasted line by line beside a fresh Paperclip with users and keys."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import free_port
from demo.services import command
from tests.support.installation import Installation, RecordedCompany
from tests.support.kafka import Broker
from tests.support.paperclip import OWNER, PASSWORD, Packages, Paperclip, Target, email_of
from tests.support.paperclip_company import PaperclipCompany, eventually, paperclip_company

pytestmark = [pytest.mark.e2e, pytest.mark.authenticated, pytest.mark.real_kafka, pytest.mark.timeout(300)]

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def fresh_paperclip(paperclip_packages: Packages, paperclip_target: Target, server_logs: Path) -> Iterator[Paperclip]:
    """A Paperclip that holds nothing but its owner."""
    with Paperclip(paperclip_packages, server_logs, paperclip_target.mode) as server:
        yield server


def blocks() -> list[str]:
    """The shell blocks of "Run it", in order."""
    section = README.read_text(encoding="utf-8").partition("\n## Run it\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Shell:
    """One terminal: what a line exports is there for the next."""

    def __init__(self, directory: Path, env: dict[str, str]) -> None:
        self._directory = directory
        self._env = env

    def run(self, script: str) -> str:
        """What the lines print; fails if one of them fails."""
        marker = "--- environment ---"
        line = f"set -e\n{script}\necho; echo '{marker}'; env -0"
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._directory, env=self._env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        printed, _, env = done.stdout.rpartition(f"{marker}\n")
        self._env = dict(item.partition("=")[::2] for item in env.split("\0") if item)
        return printed

    def start(self, line: str, log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as out:
            return subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self._directory, env=self._env, stdout=out, stderr=out
            )


def test_run_it_pasted_line_by_line_ends_with_a_remembered_comment(
    broker: Broker, hindsight: Hindsight, fresh_paperclip: Paperclip, tmp_path: Path
) -> None:
    with paperclip_company(fresh_paperclip, "Pasted") as company:
        paste(company, broker, hindsight, tmp_path)


def paste(company: PaperclipCompany, broker: Broker, hindsight: Hindsight, tmp_path: Path) -> None:
    fresh_paperclip = company.paperclip
    ada = company.agent("Ada")
    installation = Installation(broker, hindsight, RecordedCompany(), tmp_path)
    tools_port = free_port()
    own = {name: value for name, value in installation.settings.items() if name.startswith(("TOPIC_", "GROUP_"))} | {
        "TOOLS_PORT": str(tools_port),
        "WORKER_PORT": str(free_port()),
    }
    install, make_key, start, connect = blocks()
    assert "pip install" in install
    bin_ = Path(command()).parent
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PAPERCLIP")}
    ours = {f"PAPERCLIP_MEMORY_{name}": value for name, value in own.items()}
    shell = Shell(tmp_path, clean | ours | {"PATH": f"{bin_}:{os.environ['PATH']}"})

    answers = shell.run(
        make_key.replace("http://localhost:3100", fresh_paperclip.url)
        .replace("you@example.com", email_of(OWNER))
        .replace("your password", PASSWORD)
    )
    key: dict[str, Any] = json.loads(re.findall(r"\{[^{}]*pcp_board_[^{}]*\}", answers)[0])
    assert key["expiresAt"].startswith("2027-12-31")

    *lines, up = start.strip().splitlines()
    pasted = (
        "\n".join(lines)
        .replace("localhost:9092", broker.bootstrap_servers)
        .replace("http://localhost:8888", hindsight.url)
        .replace("http://localhost:3100", fresh_paperclip.url)
        .replace("pcp_board_…", key["token"])
    )
    printed = shell.run(pasted)
    assert [line for line in printed.splitlines() if line.startswith(("✗", "!"))] == []
    assert "✓ paperclip: " in printed
    assert up.startswith("paperclip-memory up ")
    log = tmp_path / "up.log"
    running = shell.start(up.partition("#")[0].strip(), log)
    try:

        def ready() -> bool:
            assert running.poll() is None, log.read_text()
            try:
                return httpx.get(f"http://127.0.0.1:{own['WORKER_PORT']}/readyz", timeout=5).status_code == 200
            except httpx.TransportError:
                return False

        eventually("everything is ready", ready)
        said = company.say(company.issue("Choose a colour", ada), "We paint it green.")
        eventually("the comment is a memory", lambda: said in installation.documents(company.bank(ada)))
        assert "call as Ada: works" in shell.run(connect.replace("COMPANY_ID", company.id).replace(".venv/bin/", ""))
        assert "✗" not in log.read_text()
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0, log.read_text()
