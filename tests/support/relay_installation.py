"""A whole installation around a real Paperclip: topics of its own, relay and workers as processes, the commands."""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from consumer.embedded.hindsight import Hindsight
from consumer.http.transport import quote_segment
from demo.measurements import WorkerMetrics
from demo.services import Service, command, environment
from tests.support.installation import Installation, RecordedCompany, wait_until_true
from tests.support.kafka import Broker
from tests.support.paperclip_company import PaperclipCompany, eventually

Json = dict[str, Any]

FULL_SIZE = bool(os.environ.get("PAPERCLIP_MEMORY_TEST_FULL_SIZE"))
"""Whether tests with many comments have all of them, which takes some minutes more."""


class RelayInstallation(Installation):
    """A `Installation` whose Paperclip is a real one, and which follows these companies only."""

    def __init__(self, broker: Broker, hindsight: Hindsight, logs: Path, *companies: PaperclipCompany) -> None:
        super().__init__(broker, hindsight, RecordedCompany(), logs)
        self.settings |= {
            **companies[0].settings,
            "RELAY_COMPANIES": ",".join(company.id for company in companies),
            "RELAY_START": "beginning",
        }
        self.companies = companies

    @contextmanager
    def relay(self, **settings: str) -> Iterator[WorkerMetrics]:
        """A relay, as its users start it."""
        with Service("relay", self.settings | settings, self.logs / f"relay-{uuid.uuid4().hex[:6]}.log") as relay:
            yield WorkerMetrics(relay.url)

    def command(self, *arguments: str, expect: int | None = 0, **settings: str) -> str:
        """What a command of ours prints; fails unless it ends as expected. None: 0 or 1."""
        done = subprocess.run(
            [command(), *arguments],
            env=environment(self.settings | settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        allowed = (0, 1) if expect is None else (expect,)
        assert done.returncode in allowed, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def audit(self, *arguments: str, expect: int | None = 0) -> dict[str, Json]:
        """The audit's report of each company, by its id. `expect`: as of `command`."""
        chosen = [part for company in self.companies for part in ("--company", company.id)]
        found = json.loads(self.command("audit", "--json", *chosen, *arguments, expect=expect))
        return {each["company"]: each for each in found["companies"]}

    def held(self, bank: str) -> set[str]:
        """Ids of all documents of a bank."""
        ids: set[str] = set()
        offset, total = 0, 1
        while offset < total and (page := self.get(f"{quote_segment(bank)}/documents", limit=100, offset=offset)):
            ids |= {document["id"] for document in page["items"]}
            offset, total = offset + 100, page["total"]
        return ids

    def events(self) -> list[Json]:
        """All events on both topics."""
        values = [value for name in ("agent_runs", "issue_comments") for _, value in self.read(name)]
        return [json.loads(value) for value in values if value is not None]

    def published(self) -> set[tuple[str, str]]:
        """Type and subject of each."""
        return {what(event) for event in self.events()}

    def wait_digested(self, banks: Iterator[str] | list[str]) -> None:
        """Wait until the workers have handled all there is, and Hindsight too."""
        self.wait_consumed()
        for bank in banks:
            wait_until_true(f"{bank} is digested", lambda bank=bank: self.digested(bank))


def what(event: Json) -> tuple[str, str]:
    """An event's type, and the run or comment that it is about."""
    payload = event["payload"]
    return event["eventType"], payload["runId" if event["eventType"].startswith("agent.run.") else "commentId"]


def retain(installation: Installation, bank: str, document: str, text: str, **metadata: str) -> None:
    """Store a document as somebody else would."""
    item = {"content": text, "document_id": document, "context": "paperclip", "metadata": metadata}
    url = f"{installation.hindsight.url}/v1/default/banks/{quote_segment(bank)}/memories"
    httpx.post(url, json={"items": [item], "async": True}, timeout=60).raise_for_status()
    eventually("it is stored", lambda: installation.digested(bank))
