"""`paperclip-memory up`: the README's picture, in one process, against a real Paperclip, Hindsight and Apache Kafka."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import ServerProcess, answers, free_port
from demo.measurements import WorkerMetrics
from demo.services import command, environment
from tests.support.installation import gauge, wait_until_true
from tests.support.kafka import Broker
from tests.support.paperclip import Paperclip
from tests.support.paperclip_company import SAY, PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import RelayInstallation

pytestmark = [pytest.mark.e2e, pytest.mark.real_kafka, pytest.mark.timeout(300)]


@pytest.fixture
def acme(paperclip: Paperclip) -> Iterator[PaperclipCompany]:
    with paperclip_company(paperclip, "Up") as opened:
        yield opened


def test_one_process_does_it_all(broker: Broker, hindsight: Hindsight, acme: PaperclipCompany, tmp_path: Path) -> None:
    installation = RelayInstallation(broker, hindsight, tmp_path, acme)
    worker_port, tools_port = free_port(), free_port()
    ports = {"WORKER_PORT": str(worker_port), "TOOLS_PORT": str(tools_port), "EXPORTER_INTERVAL": "1"}
    metrics = WorkerMetrics(f"http://127.0.0.1:{worker_port}")
    up = ServerProcess(
        step="starting up",
        command=[command(), "up", "--strict"],
        ready=lambda: answers(f"http://127.0.0.1:{worker_port}/readyz"),
        log=tmp_path / "up.log",
        env=environment(installation.settings | ports),
    )
    up.start()
    try:
        ada = acme.agent("Ada", SAY + 'say "Decision: tokens expire after 24 hours."; sleep 5')
        bank = installation.company.bank(ada).replace(installation.company.id, acme.id)
        acme.issue("Ship the login", ada, status="todo", description="How long do tokens live?")
        wait_until_true(
            "her comment is a document", lambda: installation.documents(bank) and installation.digested(bank)
        )

        second = acme.issue("Rotate the tokens", ada, status="todo", description="When do tokens expire?")

        def begun() -> str | None:
            runs = (run for run in acme.runs() if run["agentId"] == ada and run["startedAt"])
            return next((run["id"] for run in runs if (run["contextSnapshot"] or {}).get("issueId") == second), None)

        run = eventually("her second run starts", begun)
        key = {"Authorization": f"Bearer {acme.key(ada)}", "X-Paperclip-Run-Id": run}

        def wait_for_recall() -> str:
            return httpx.get(f"http://127.0.0.1:{tools_port}/v1/runs/{run}/memories", headers=key, timeout=10).text

        wait_until_true("the tools know what was recalled for it", lambda: "24 hours" in wait_for_recall())
        lag = {"group": installation.settings["GROUP_RETAIN"], "topic": installation.topics["issue_comments"]}
        wait_until_true("the exporter sees the groups", lambda: gauge(metrics, "group_lag_records", lag) == 0)
        os.kill(up.pid, signal.SIGTERM)
        wait_until_true("it ends by itself", lambda: not up.running, deadline=30)
        assert "Traceback" not in (tmp_path / "up.log").read_text()
    finally:
        up.stop()
