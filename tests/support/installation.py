"""One installation for one end-to-end test: its own topics and groups, a company of its own, and real workers."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import wait_until
from consumer.http.transport import quote_segment
from demo import recording
from demo.measurements import WorkerMetrics
from demo.recording import Json
from demo.services import Service, run
from demo.standin import StandIn, in_thread
from tests.support.kafka import Broker

Header = tuple[str, bytes]
DEADLINE = 90.0
PARTITIONS = 8


class RecordedCompany:
    """The recorded company under ids of its own, so that its banks are its own too.

    Attributes:
        events: as a plugin would receive them.
        standin: serves its objects; they may be changed.
    """

    def __init__(self, key: str | None = None) -> None:
        self.id = str(uuid.uuid4())
        recorded = recording.company()["id"]

        def rename(value: Any) -> Any:
            return json.loads(json.dumps(value).replace(recorded, self.id))

        self.events: list[Json] = rename(recording.events())
        self.standin = StandIn(key)
        for name in ("company", "agent_me", "agents", "issues", "runs", "comments"):
            setattr(self.standin, name, rename(getattr(self.standin, name)))

    def bank(self, agent: str) -> str:
        return f"paperclip::{self.id}::{agent}"

    def created(self) -> list[Json]:
        return [event for event in self.events if event["eventType"] == "issue.comment.created"]

    def started(self, **changes: Any) -> Json:
        """A new run like the last recorded one that a comment woke; the stand-in knows it."""
        woken = [
            r for r in self.standin.runs.values() if (r["contextSnapshot"].get("paperclipWake") or {}).get("comments")
        ]
        model = max(woken, key=lambda each: str(each["startedAt"]))
        run_, event = deepcopy(model), next(e for e in self.events if e["payload"].get("runId") == model["id"])
        event = deepcopy(event)
        run_["id"] = event["entityId"] = event["payload"]["runId"] = str(uuid.uuid4())
        event |= {"eventId": str(uuid.uuid4()), "eventType": "agent.run.started"}
        event["payload"] |= changes
        self.standin.runs[run_["id"]] = run_
        return event

    def said(self, body: str, *, agent: str, issue: str) -> Json:
        """A new comment of an agent; the stand-in knows it. Returns its event."""
        model = next(c for c in self.standin.comments.values() if c["authorType"] == "agent")
        comment = deepcopy(model) | {"id": str(uuid.uuid4()), "body": body, "authorAgentId": agent, "issueId": issue}
        event = deepcopy(self.created()[0])
        event |= {"eventId": str(uuid.uuid4()), "entityId": issue}
        event["payload"] |= {"commentId": comment["id"], "bodySnippet": body[:120], "agentId": agent}
        self.standin.comments[comment["id"]] = comment
        return event

    def deletes(self, created: Json) -> Json:
        """Delete a comment as Paperclip does, leaving a tombstone. Returns the event of it."""
        comment = self.standin.comments[created["payload"]["commentId"]]
        comment |= {"body": "", "deletedAt": "2026-11-30T10:00:00.000Z"}
        return deepcopy(created) | {"eventId": str(uuid.uuid4()), "eventType": "issue.comment.deleted"}


class Installation:
    """Topics and groups of one test, and what reads and writes them."""

    def __init__(self, broker: Broker, hindsight: Hindsight, company: RecordedCompany, logs: Path) -> None:
        self.broker = broker
        self.hindsight = hindsight
        self.company = company
        self.logs = logs
        self.prefix = f"e2e.{uuid.uuid4().hex[:8]}"
        self.topics = {
            name: f"{self.prefix}.{name}"
            for name in ("agent_runs", "issue_comments", "recalls", "dead_letters", "relay_checkpoints")
        }
        self.settings = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "HINDSIGHT_API_URL": hindsight.url,
            "PAPERCLIP_API_URL": company.standin.url,
            "GROUP_RECALL": f"{self.prefix}.recall",
            "GROUP_RETAIN": f"{self.prefix}.retain",
            "RETRY_MAX_DELAY": "2",
            "LOG_FORMAT": "console",
            **{f"TOPIC_{name.upper()}": topic for name, topic in self.topics.items()},
        }
        run("creating topics", ["topics"], self.settings, logs / "topics.log")

    @contextmanager
    def worker(self, **settings: str) -> Iterator[WorkerMetrics]:
        """A worker, as its users start it."""
        with Service("worker", self.settings | settings, self.logs / f"worker-{uuid.uuid4().hex[:6]}.log") as worker:
            yield WorkerMetrics(worker.url)

    def publish(self, events: Sequence[Json], headers: Sequence[Header] = ()) -> None:
        """Write events in their order, keyed as the relay does."""

        async def write() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.broker.bootstrap_servers, acks="all")
            await producer.start()
            try:
                for event in events:
                    is_run = event["eventType"].startswith("agent.run.")
                    topic = self.topics["agent_runs" if is_run else "issue_comments"]
                    key = event["payload"]["runId" if is_run else "commentId"].encode()
                    await producer.send_and_wait(topic, json.dumps(event).encode(), key=key, headers=list(headers))
            finally:
                await producer.stop()

        asyncio.run(write())

    def read(self, name: str) -> list[tuple[bytes | None, bytes | None]]:
        """Everything on a topic, as (key, value)."""

        async def consume() -> list[tuple[bytes | None, bytes | None]]:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap_servers, auto_offset_reset="earliest")
            await consumer.start()
            try:
                tps = [TopicPartition(self.topics[name], number) for number in range(PARTITIONS)]
                consumer.assign(tps)
                ends = await consumer.end_offsets(tps)
                found: list[tuple[bytes | None, bytes | None]] = []
                while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        found += [(record.key, record.value) for record in batch]
                return found
            finally:
                await consumer.stop()

        return asyncio.run(consume())

    def lag(self) -> int:
        """Records that a lane's group has not committed, over both lanes."""

        async def measure() -> int:
            total = 0
            for group, topic in (("recall", "agent_runs"), ("retain", "issue_comments")):
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self.broker.bootstrap_servers,
                    group_id=f"{self.prefix}.{group}",
                    enable_auto_commit=False,
                )
                await consumer.start()
                try:
                    tps = [TopicPartition(self.topics[topic], number) for number in range(PARTITIONS)]
                    consumer.assign(tps)
                    ends = await consumer.end_offsets(tps)
                    total += sum([ends[tp] - (await consumer.committed(tp) or 0) for tp in tps])
                finally:
                    await consumer.stop()
            return total

        return asyncio.run(measure())

    def wait_consumed(self) -> None:
        wait_until_true("all records are committed", lambda: self.lag() == 0)

    # Hindsight, asked directly

    def get(self, path: str, key: str | None = None, **query: str | int) -> Any:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{self.hindsight.url}/v1/default/banks/{path}"
        reply = httpx.get(url, params=query, headers=headers, timeout=30)
        return None if reply.status_code == 404 else reply.raise_for_status().json()

    def documents(self, bank: str, key: str | None = None) -> dict[str, Json]:
        page = self.get(f"{quote_segment(bank)}/documents", key, limit=100)
        return {document["id"]: document for document in page["items"]} if page else {}

    def operations(self, bank: str, status: str = "") -> list[Json]:
        page = self.get(f"{quote_segment(bank)}/operations", limit=100, **({"status": status} if status else {}))
        return list(page["operations"]) if page else []

    def digested(self, bank: str) -> bool:
        """Whether no retain of a bank is unfinished."""
        unfinished = [op for status in ("pending", "processing") for op in self.operations(bank, status=status)]
        return not any(op["operation_type"] in ("retain", "batch_retain") for op in unfinished)


def wait_until_true(what: str, condition: Any, deadline: float = DEADLINE) -> None:
    """Wait until a condition holds; fails with its name."""
    started = time.monotonic()
    assert wait_until(condition, deadline), f"not within {time.monotonic() - started:.0f} s: {what}"


def gauge(metrics: WorkerMetrics, name: str, labels: Mapping[str, str]) -> float:
    """A sample's value, read from a worker's /metrics now."""
    from prometheus_client.parser import text_string_to_metric_families

    text = metrics._client.get("/metrics").raise_for_status().text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"paperclip_memory_{name}" and labels.items() <= sample.labels.items():
                return float(sample.value)
    raise AssertionError(f"no sample {name} {labels}")


@contextmanager
def open_installation(
    broker: Broker, hindsight: Hindsight, logs: Path, key: str | None = None
) -> Iterator[Installation]:
    """An installation whose stand-in for Paperclip serves until the block ends."""
    company = RecordedCompany(key)
    with in_thread(company.standin):
        yield Installation(broker, hindsight, company, logs)
