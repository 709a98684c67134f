"""What the demo looks up: the worker's counters, and the memories that Hindsight holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from demo import recording

Counters = Mapping[str, float]
EVENTS = "paperclip_memory_events_total"


class Metrics:
    """The counters of a worker."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=10)

    def read(self) -> Counters:
        """All counters by name and labels, now."""
        text = self._client.get("/metrics").raise_for_status().text
        return {
            _series(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            if family.type == "counter"
            for sample in family.samples
            if sample.name.startswith("paperclip_memory_") and sample.name.endswith("_total")
        }

    def handled(self) -> int:
        """How many records the worker is done with."""
        return int(
            sum(
                value
                for series, value in self.read().items()
                if series.startswith(EVENTS) and 'outcome="retried"' not in series
            )
        )

    @staticmethod
    def moved(before: Counters, after: Counters) -> list[tuple[str, str, str]]:
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


class Memories:
    """What stands in Hindsight."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=f"{url}/v1/default", timeout=30)

    def progress(self) -> tuple[int, int]:
        """How many operations are finished, and how many there are."""
        finished = total = 0
        for bank in self._banks():
            operations = self._get(f"/banks/{bank}/operations", limit=1)["total"]
            total += operations
            finished += operations
            for status in ("pending", "processing"):
                finished -= self._get(f"/banks/{bank}/operations", status=status, limit=1)["total"]
        return finished, total

    def by_agent(self) -> list[AgentMemories]:
        """What each agent of the recording has in its bank, if it has one."""
        names = {agent["id"]: agent["name"] for agent in recording.agents()}
        found = []
        for bank in sorted(self._banks()):
            documents = self._get(f"/banks/{bank}/documents", limit=100)["items"]
            texts = [self._get(f"/banks/{bank}/documents/{each['id']}")["original_text"] for each in documents]
            found.append(AgentMemories(names.get(bank.rpartition("::")[2], "?"), bank, texts))
        return sorted(found, key=lambda each: each.agent)

    def _banks(self) -> list[str]:
        return [bank["bank_id"] for bank in self._get("/banks")["banks"]]

    def _get(self, path: str, **query: str | int) -> Any:
        return self._client.get(path, params=query).raise_for_status().json()


def _series(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
