"""Lanes as a worker wires them, within a test."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from prometheus_client import CollectorRegistry

from consumer.commands.clients import VERSION
from consumer.commands.runtime import Process
from consumer.commands.worker import open_lane
from consumer.errors import Upstream
from consumer.hindsight.client import HindsightOperation
from consumer.kafka.options import producer
from consumer.observability.prometheus import Metrics
from consumer.paperclip.models import PaperclipOperation
from consumer.settings.model import Settings
from consumer.stream.hooks import AttemptFinished, AttemptOutcome, EngineEvent, ParkReason
from consumer.stream.lane import Lane
from tests.support.topics import Topics

STOP_WITHIN = 20.0


@dataclass
class RunningLane:
    """A lane that runs, and what it has said: `times` holds when, in seconds since the epoch."""

    lane: Lane
    signals: list[EngineEvent]
    times: list[float]

    def attempts(self) -> list[AttemptFinished]:
        return [each for each in self.signals if isinstance(each, AttemptFinished)]

    def spans(self) -> list[tuple[float, float]]:
        """When each attempt began and ended."""
        pairs = zip(self.times, self.signals, strict=True)
        return [(at - each.duration, at) for at, each in pairs if isinstance(each, AttemptFinished)]

    def finished(self) -> list[AttemptFinished]:
        """The attempts that were their record's last."""
        return [each for each in self.attempts() if each.outcome is not AttemptOutcome.RETRIED]

    def parked(self, reason: ParkReason) -> int:
        return self.lane.state().parked[reason]


async def settings(topics: Topics, hindsight_url: str, *, partitions: int = 8, **fields: Any) -> Settings:
    """Settings of one test, with topics and groups of its own."""
    return Settings(
        hindsight_api_url=hindsight_url,
        kafka_bootstrap_servers=topics.broker.bootstrap_servers,
        kafka_enable_idempotence=topics.broker.idempotence,
        topic_agent_runs=await topics.create("runs", partitions),
        topic_issue_comments=await topics.create("comments", partitions),
        topic_recalls=await topics.create("recalls"),
        topic_dead_letters=await topics.create("dead"),
        group_recall=topics.name("recall"),
        group_retain=topics.name("retain"),
        worker_port=0,
        **fields,
    )


@asynccontextmanager
async def lane(of: Settings, name: str) -> AsyncIterator[RunningLane]:
    """Run a lane as a worker does; stop it in the end."""
    registry = CollectorRegistry()
    operations = {Upstream.HINDSIGHT: HindsightOperation, Upstream.PAPERCLIP: PaperclipOperation}
    metrics = Metrics(registry, version=VERSION, lanes=[name], operations=operations)
    signals: list[EngineEvent] = []
    times: list[float] = []

    def notify(signal: EngineEvent) -> None:
        signals.append(signal)
        times.append(time.time())

    process = Process(of, registry, metrics, notify, lambda *_args, **_fields: None)
    async with open_lane(process, name) as opened:
        running = RunningLane(opened, signals, times)
        task = asyncio.create_task(opened.run())
        try:
            yield running
        finally:
            await opened.stop(STOP_WITHIN)
            await task


async def publish(
    of: Settings, topic: str, records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]
) -> None:
    """Publish records of key, value and headers, in this order."""
    made: AIOKafkaProducer = producer(of)
    await made.start()
    try:
        sent = [await made.send(topic, value, key=key, headers=headers) for key, value, headers in records]
        await asyncio.gather(*sent)
    finally:
        await made.stop()


async def lag(of: Settings, topic: str, group: str) -> int:
    """How many records of a topic the group has not committed."""
    consumer = AIOKafkaConsumer(bootstrap_servers=of.kafka_bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        known = await consumer._client.fetch_all_metadata()
        partitions = [TopicPartition(topic, number) for number in known.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        return sum([ends[each] - (await consumer.committed(each) or 0) for each in partitions])
    finally:
        await consumer.stop()


async def all_committed(of: Settings, topic: str, group: str, seconds: float = 30.0) -> None:
    """Wait until the lag is 0. Raises `TimeoutError`."""
    async with asyncio.timeout(seconds):
        while await lag(of, topic, group):  # noqa: ASYNC110 - only the broker knows
            await asyncio.sleep(0.2)
