"""Measures the relay on real Paperclip, Hindsight and Apache Kafka.

    python -m benchmarks.relay

Prints one JSON line for each figure, with the WebSocket and without it: from a comment's creation to its record on
Kafka, from a run's start to its memories on Kafka, and requests to Paperclip when nothing happens.
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
from operator import itemgetter
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from aiokafka import AIOKafkaConsumer
from prometheus_client.parser import text_string_to_metric_families

from consumer.embedded import hindsight as hindsight_server
from consumer.embedded.hindsight import Hindsight
from consumer.embedded.supervise import ServerError
from consumer.kafka.topic_reader import read_topic
from demo.services import Service
from schemas.timestamps import parse_timestamp
from tests.support import kafka_jvm
from tests.support import paperclip as paperclip_server
from tests.support.kafka import Broker, Kind
from tests.support.kafka_jvm import JvmKafka
from tests.support.paperclip import Paperclip
from tests.support.paperclip_company import PaperclipCompany, eventually, paperclip_company
from tests.support.relay_installation import RelayInstallation

COMMENTS, RUNS = 60, 20
QUIET = 30.0
"""Seconds without any event."""
BOUNDS = {
    ("published", False): 2_000.0,
    ("published", True): 300.0,
    ("recalled", True): 1_000.0,
}
"""Upper bounds of p95, milliseconds."""


@dataclass(frozen=True, slots=True)
class RelayTestbed:
    """A company in Paperclip, and the relay and worker that follow it."""

    company: PaperclipCompany
    installation: RelayInstallation
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
            with open_testbed(paperclip, served, Broker(kafka.bootstrap_servers, Kind.JVM), logs, websocket) as testbed:
                for result in (measure_published(testbed), measure_recalled(testbed), measure_idle(testbed)):
                    load = round(os.getloadavg()[0], 2)
                    print(json.dumps(result | {"websocket": websocket, "load": load}), flush=True)
    return 0


@contextmanager
def open_testbed(
    paperclip: Paperclip, hindsight: Hindsight, broker: Broker, logs: Path, websocket: bool
) -> Iterator[RelayTestbed]:
    with paperclip_company(paperclip) as company:
        agent = company.agent("Ada")
        issue = company.issue("Keep the lights on", agent, description="Report every day.")
        settings = {"RELAY_WEBSOCKET": str(websocket).lower()}
        installation = RelayInstallation(broker, hindsight, logs, company)
        installation.settings |= settings
        with (
            Service("relay", installation.settings, logs / "relay.log") as relay,
            Service("worker", installation.settings, logs / "worker.log"),
        ):
            yield RelayTestbed(company, installation, relay, agent, issue, websocket)


def measure_published(testbed: RelayTestbed) -> dict[str, Any]:
    """From a comment's `createdAt` to the time of its record, which the relay's producer gives it."""
    testbed.company.pause(testbed.agent)  # comments that wake nobody
    rng = random.Random(7)  # noqa: S311 - the same each time
    comment_ids = []
    for _ in range(COMMENTS):
        comment_ids.append(testbed.company.say(testbed.issue, "We keep the cookie flow until March."))
        time.sleep(rng.uniform(0.2, 1.0))
    events = {("issue.comment.created", comment_id) for comment_id in comment_ids}
    eventually("all are published", lambda: events <= testbed.installation.published())
    comments = testbed.company.comments(testbed.issue)
    created = {comment["id"]: parse_timestamp(comment["createdAt"]) for comment in comments}
    times = [
        1000 * (written - created[event["payload"]["commentId"]])
        for event, written in records(testbed, "issue_comments")
        if event["eventType"] == "issue.comment.created" and event["payload"]["commentId"] in created
    ]
    return _result("published", times, testbed)


def measure_recalled(testbed: RelayTestbed) -> dict[str, Any]:
    """From a run's `startedAt` to the time of the record of its memories."""
    testbed.company.post(f"/api/agents/{testbed.agent}/resume")
    for _ in range(RUNS):
        before = {run["id"] for run in testbed.company.runs()}
        testbed.company.say(testbed.issue, "What did we decide about cookies?")

        def over(before: set[str] = before) -> bool:
            runs = [run for run in testbed.company.runs() if run["id"] not in before]
            return bool(runs) and all(run["status"] not in ("queued", "running") for run in runs)

        eventually("its run is over", over)
    testbed.company.pause(testbed.agent)
    began = {run["id"]: parse_timestamp(run["startedAt"]) for run in testbed.company.runs() if run["startedAt"]}
    eventually("all are recalled", lambda: began.keys() <= {value["runId"] for value, _ in records(testbed, "recalls")})
    first: dict[str, float] = {}
    for value, written in records(testbed, "recalls"):
        first.setdefault(value["runId"], written)
    return _result("recalled", [1000 * (first[run] - started) for run, started in began.items()], testbed)


def measure_idle(testbed: RelayTestbed) -> dict[str, Any]:
    """Requests to Paperclip per second for one company in which nothing happens."""
    before, began = _requests(testbed), time.monotonic()
    time.sleep(QUIET)
    rate = (_requests(testbed) - before) / (time.monotonic() - began)
    return {"bench": "relay", "what": "idle", "requests_per_second": round(rate, 2), "bound": 2.0, "kept": rate <= 2.0}


def records(testbed: RelayTestbed, name: str) -> list[tuple[dict[str, Any], float]]:
    """The values of a topic with their records' timestamps in seconds, ordered by time."""

    async def read() -> list[tuple[dict[str, Any], float]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=testbed.installation.broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            topic = testbed.installation.topics[name]
            messages = [message async for message in read_topic(consumer, topic)]
            values = [(json.loads(m.value), m.timestamp / 1000) for m in messages if m.value is not None]
            return sorted(values, key=itemgetter(1))
        finally:
            await consumer.stop()

    return asyncio.run(read())


def _requests(testbed: RelayTestbed) -> float:
    text = httpx.get(f"{testbed.relay.url}/metrics", timeout=10).raise_for_status().text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "paperclip_memory_upstream_requests_total" and sample.labels["upstream"] == "paperclip"
    )


def _result(what: str, times: list[float], testbed: RelayTestbed) -> dict[str, Any]:
    p95 = quantiles(times, n=20)[-1]
    bound = BOUNDS.get((what, testbed.websocket))
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
