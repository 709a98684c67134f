"""How fast the relay is, on real Paperclip, Hindsight and Apache Kafka.

    python -m benchmarks.relay

One JSON line for each question, with the WebSocket and without: from a comment's creation to its record on Kafka, from
a run's start to its memories on Kafka, and the requests to Paperclip when nothing happens.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from aiokafka import AIOKafkaConsumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from consumer.embedded import hindsight as hindsight_server
from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import ServerError
from demo.ours import Service
from schemas.timestamps import parse_timestamp
from tests.e2e.paperclip_company import PaperclipCompany, eventually, paperclip_company
from tests.e2e.relay_installation import RelayInstallation
from tests.support import kafka_jvm
from tests.support import paperclip as paperclip_server
from tests.support.kafka import Broker, Kind
from tests.support.kafka_jvm import JvmKafka
from tests.support.paperclip import Paperclip

COMMENTS, RUNS = 60, 20
QUIET = 30.0
"""Seconds for which nothing happens."""
BOUNDS = {
    ("published", False): 2_000.0,
    ("published", True): 300.0,
    ("recalled", True): 1_000.0,
}
"""Milliseconds: what p95 should stay under."""


@dataclass(frozen=True, slots=True)
class Desk:
    """A company at work, and what follows it."""

    acme: PaperclipCompany
    site: RelayInstallation
    relay: Service
    agent: str
    issue: str
    websocket: bool


def main() -> int:
    if not kafka_jvm.available():
        sys.stderr.write("✗ needs a JVM and Maven for Apache Kafka\n")
        return 1
    try:
        packages, hindsight = (
            paperclip_server.install(paperclip_server.RECORDED),
            hindsight_server.install(lambda _: None),
        )
    except ServerError as error:
        sys.stderr.write(f"✗ {error}\n")
        return 1
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        logs = Path(directory)
        kafka = stack.enter_context(JvmKafka(logs))
        paperclip = stack.enter_context(Paperclip(packages, logs))
        served = stack.enter_context(Hindsight(hindsight, logs))
        for websocket in (True, False):
            with desk(paperclip, served, Broker(kafka.bootstrap_servers, Kind.JVM), logs, websocket) as at:
                for line in (published(at), recalled(at), asked_when_idle(at)):
                    print(json.dumps(line | {"websocket": websocket, "load": round(os.getloadavg()[0], 2)}), flush=True)
    return 0


@contextmanager
def desk(paperclip: Paperclip, hindsight: Hindsight, broker: Broker, logs: Path, websocket: bool) -> Iterator[Desk]:
    with paperclip_company(paperclip) as acme:
        agent = acme.agent("Ada")
        issue = acme.issue("Keep the lights on", agent, description="Report every day.")
        settings = {"RELAY_WEBSOCKET": str(websocket).lower()}
        site = RelayInstallation(broker, hindsight, logs, acme)
        site.settings |= settings
        with (
            Service("relay", site.settings, logs / "relay.log") as relay,
            Service("worker", site.settings, logs / "worker.log"),
        ):
            yield Desk(acme, site, relay, agent, issue, websocket)


def published(at: Desk) -> dict[str, Any]:
    """From a comment's `createdAt` to the time of its record, which the relay's producer gives it."""
    at.acme.pause(at.agent)  # comments that wake nobody
    dice = random.Random(7)  # noqa: S311 - the same each time
    said = []
    for _ in range(COMMENTS):
        said.append(at.acme.say(at.issue, "We keep the cookie flow until March."))
        time.sleep(dice.uniform(0.2, 1.0))
    eventually("all are published", lambda: {("issue.comment.created", each) for each in said} <= at.site.published())
    made = {each["id"]: parse_timestamp(each["createdAt"]) for each in at.acme.comments(at.issue)}
    times = [
        1000 * (written - made[event["payload"]["commentId"]])
        for event, written in records(at, "issue_comments")
        if event["eventType"] == "issue.comment.created" and event["payload"]["commentId"] in made
    ]
    return _line("published", times, at)


def recalled(at: Desk) -> dict[str, Any]:
    """From a run's `startedAt` to the time of the record of its memories."""
    at.acme.post(f"/api/agents/{at.agent}/resume")
    for _ in range(RUNS):
        before = {run["id"] for run in at.acme.runs()}
        at.acme.say(at.issue, "What did we decide about cookies?")

        def over(before: set[str] = before) -> bool:
            runs = [run for run in at.acme.runs() if run["id"] not in before]
            return bool(runs) and all(run["status"] not in ("queued", "running") for run in runs)

        eventually("its run is over", over)
    at.acme.pause(at.agent)
    began = {run["id"]: parse_timestamp(run["startedAt"]) for run in at.acme.runs() if run["startedAt"]}
    eventually("all are recalled", lambda: began.keys() <= {value["runId"] for value, _ in records(at, "recalls")})
    first: dict[str, float] = {}
    for value, written in records(at, "recalls"):
        first.setdefault(value["runId"], written)
    return _line("recalled", [1000 * (first[run] - started) for run, started in began.items()], at)


def asked_when_idle(at: Desk) -> dict[str, Any]:
    """Requests to Paperclip a second, of one company in which nothing happens."""
    before, began = _requests(at), time.monotonic()
    time.sleep(QUIET)
    rate = (_requests(at) - before) / (time.monotonic() - began)
    return {"bench": "relay", "what": "idle", "requests_per_second": round(rate, 2), "bound": 2.0, "kept": rate <= 2.0}


def records(at: Desk, name: str) -> list[tuple[dict[str, Any], float]]:
    """Values of a topic with the times of their records, seconds since the epoch, in the order of time."""

    async def read() -> list[tuple[dict[str, Any], float]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=at.site.broker.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partitions = [TopicPartition(at.site.topics[name], number) for number in range(8)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found = []
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(json.loads(m.value), m.timestamp / 1000) for m in messages if m.value is not None]
            return sorted(found, key=lambda each: each[1])
        finally:
            await consumer.stop()

    return asyncio.run(read())


def _requests(at: Desk) -> float:
    text = httpx.get(f"{at.relay.url}/metrics", timeout=10).raise_for_status().text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "paperclip_memory_upstream_requests_total" and sample.labels["upstream"] == "paperclip"
    )


def _line(what: str, times: list[float], at: Desk) -> dict[str, Any]:
    p95 = quantiles(times, n=20)[-1]
    bound = BOUNDS.get((what, at.websocket))
    return {
        "bench": "relay",
        "what": what,
        "count": len(times),
        "p50_ms": round(median(times), 1),
        "p95_ms": round(p95, 1),
        "bound_ms": bound,
        "kept": bound is None or p95 <= bound,
    }


if __name__ == "__main__":
    sys.exit(main())
