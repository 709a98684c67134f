"""Bare aiokafka clients, and a lane on a real `KafkaSource`, for the tests of aiokafka's traps."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.protocol.group import LeaveGroupRequest

from consumer.handlers.results import Done, HandlerResult
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.dead_letter_writer import Write
from consumer.stream.executor import Job, LaneSettings
from consumer.stream.hooks import EngineEvent
from consumer.stream.lane import Lane
from consumer.stream.records import Record
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import LaneScheduler
from consumer.stream.source import KafkaSource
from tests.support.topics import Topics

SignalT = TypeVar("SignalT")


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; pytest's time limit ends a test that waits in vain."""
    while not condition():  # noqa: ASYNC110 - conditions of any kind
        await asyncio.sleep(0.005)


def consumer(topics: Topics, group: str = "group", **options: Any) -> AIOKafkaConsumer:
    """A member as our lanes are members, but quick to hear of a rebalance."""
    return AIOKafkaConsumer(
        bootstrap_servers=topics.broker.bootstrap_servers,
        group_id=topics.name(group),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        partition_assignment_strategy=(RangePartitionAssignor,),
        heartbeat_interval_ms=100,
        rebalance_timeout_ms=15_000,
        **{"fetch_max_wait_ms": 50} | options,
    )


@asynccontextmanager
async def started(client: AIOKafkaConsumer) -> AsyncIterator[AIOKafkaConsumer]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def producer(topics: Topics, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=topics.broker.bootstrap_servers, **options)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def produce(topics: Topics, topic: str, values: Sequence[bytes], partition: int = 0, **options: Any) -> None:
    """Write values, each its own key."""
    async with producer(topics, **options) as client:
        for value in values:
            await client.send_and_wait(topic, value, key=value[:32], partition=partition)


async def committed(topics: Topics, tp: TopicPartition) -> int | None:
    """What the group has committed."""
    async with started(consumer(topics)) as client:
        found = await client.committed(tp)
        return None if found is None else int(found)


async def end(topics: Topics, tp: TopicPartition) -> int:
    async with started(consumer(topics)) as client:
        return int((await client.end_offsets([tp]))[tp])


async def caught_up(topics: Topics, *tps: TopicPartition) -> None:
    """Wait until the group's lag is 0."""
    async with started(consumer(topics)) as client:
        ends = await client.end_offsets(tps)
        while {tp: await client.committed(tp) for tp in tps} != ends:  # noqa: ASYNC110 - only the broker knows
            await asyncio.sleep(0.02)


async def refuse(*_: object) -> None:
    raise AssertionError("nothing here becomes a dead letter")


@dataclass
class LaneHarness:
    """A lane on real Kafka. Jobs run while the gate is open; `handled` are the values whose jobs have ended well."""

    lane: Lane = field(init=False)
    source: KafkaSource = field(init=False)
    running: asyncio.Task[None] = field(init=False)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[bytes | None] = field(default_factory=list)
    handled: list[bytes | None] = field(default_factory=list)
    cancelled: int = 0
    signals: list[EngineEvent] = field(default_factory=list)

    def events(self, kind: type[SignalT]) -> list[SignalT]:
        return [signal for signal in self.signals if isinstance(signal, kind)]

    def resolve(self, record: Record) -> Job:
        async def run() -> HandlerResult:
            self.begun.append(record.value)
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            self.handled.append(record.value)
            return Done()

        return Job("trap", run)

    @property
    def client(self) -> AIOKafkaConsumer:
        return self.source._consumer

    def rejoin(self) -> None:
        """Make the group rebalance."""
        coordinator: Any = self.client._coordinator
        coordinator.request_rejoin()


@asynccontextmanager
async def lane(
    topics: Topics,
    topic: str,
    *,
    source: type[KafkaSource] = KafkaSource,
    resolve: Callable[[Record], Job] | None = None,
    write: Write = refuse,
    too_large: type[Exception] = AssertionError,
    limits: BackpressureLimits | None = None,
    drain_timeout: float = 0.1,
    **options: Any,
) -> AsyncIterator[LaneHarness]:
    """A running lane, its gate open."""
    harness = LaneHarness()
    harness.gate.set()
    harness.source = source(lambda: consumer(topics, **options), [topic])
    harness.lane = Lane(
        LaneSettings("trap", "dead", drain_timeout, too_large),
        LaneScheduler(8, RetryPolicy(), limits or BackpressureLimits()),
        harness.source,
        resolve or harness.resolve,
        write,
        harness.signals.append,
    )
    harness.running = asyncio.create_task(harness.lane.run())
    try:
        yield harness
    finally:
        await harness.lane.stop(5.0)
        await harness.running


class Listener(ConsumerRebalanceListener):
    """Counts its calls; `hold` keeps it in the one after an assignment."""

    def __init__(self) -> None:
        self.assigned = self.revoked = 0
        self.generation: int | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.client: AIOKafkaConsumer | None = None

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.assigned += 1
        await self.hold.wait()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.revoked += 1
        if self.client is not None:
            self.generation = coordinator(self.client).generation


def coordinator(client: AIOKafkaConsumer) -> Any:
    return client._coordinator


def prefetched(client: AIOKafkaConsumer) -> Any:
    fetcher: Any = client._fetcher
    return fetcher._records


def member(topics: Topics, topic: str, listener: Listener | None = None, **options: Any) -> AIOKafkaConsumer:
    client = consumer(topics, **options)
    client.subscribe([topic], listener=listener)
    if listener is not None:
        listener.client = client
    return client


async def leave(client: AIOKafkaConsumer) -> None:
    """Evict a member: the group lets it go, and it does not know."""
    its = coordinator(client)
    await its._send_req(LeaveGroupRequest(its.group_id, its.member_id))


def values(polled: dict[TopicPartition, list[Any]]) -> list[bytes]:
    return [record.value for records in polled.values() for record in records]


async def poll(client: AIOKafkaConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += values(await client.getmany(timeout_ms=100))
    return found
