"""Reads the worker's counters and the memories in Hindsight."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from demo import recording

Counters = Mapping[str, float]
EVENTS = "paperclip_memory_events_total"


class WorkerMetrics:
    """The counters of a worker."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=10)

    def read(self) -> Counters:
        """The current value of each counter, by name and labels."""
        text = self._client.get("/metrics").raise_for_status().text
        return {
            _series(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            if family.type == "counter"
            for sample in family.samples
            if sample.name.startswith("paperclip_memory_") and sample.name.endswith("_total")
        }

    def handled(self) -> int:
        """The number of records that the worker has finished."""
        return int(
            sum(
                value
                for series, value in self.read().items()
                if series.startswith(EVENTS) and 'outcome="retried"' not in series
            )
        )

    @staticmethod
    def changes(before: Counters, after: Counters) -> list[tuple[str, str, str]]:
        """The counters that changed, with their values."""
        return [
            (series, f"{before.get(series, 0):.0f}", f"{value:.0f}")
            for series, value in sorted(after.items())
            if value != before.get(series, 0)
        ]


@dataclass(frozen=True, slots=True)
class AgentMemories:
    """The texts of the documents in one agent's bank."""

    agent: str
    bank: str
    texts: list[str]


class HindsightContents:
    """The documents in Hindsight."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=f"{url}/v1/default", timeout=30)

    def progress(self) -> tuple[int, int]:
        """The number of finished operations and of all operations."""
        finished = total = 0
        for bank in self._banks():
            operations = self._get(f"/banks/{bank}/operations", limit=1)["total"]
            total += operations
            finished += operations
            for status in ("pending", "processing"):
                finished -= self._get(f"/banks/{bank}/operations", status=status, limit=1)["total"]
        return finished, total

    def by_agent(self) -> list[AgentMemories]:
        """The documents in the bank of each recorded agent that has a bank."""
        names = {agent["id"]: agent["name"] for agent in recording.agents()}
        memories = []
        for bank in sorted(self._banks()):
            documents = self._get(f"/banks/{bank}/documents", limit=100)["items"]
            urls = [f"/banks/{bank}/documents/{document['id']}" for document in documents]
            texts = [self._get(url)["original_text"] for url in urls]
            memories.append(AgentMemories(names.get(bank.rpartition("::")[2], "?"), bank, texts))
        return sorted(memories, key=attrgetter("agent"))

    def _banks(self) -> list[str]:
        return [bank["bank_id"] for bank in self._get("/banks")["banks"]]

    def _get(self, path: str, **query: str | int) -> Any:
        return self._client.get(path, params=query).raise_for_status().json()


def _series(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
