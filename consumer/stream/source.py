"""The engine's view of a Kafka consumer, and its implementation on aiokafka.

aiokafka 0.14 shapes this: it rebalances eagerly only; each rebalance makes a new assignment, so pauses are lost;
records of a new assignment can arrive before its listener is called; a poll that raises loses records that it had
already taken; `getmany` must never be cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import ConsumerStoppedError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest

from consumer.stream.records import Partition, Record
from consumer.stream.unreadable import UnreadableRecord

OLDEST_TIMESTAMP = 1_420_070_400_000
"""Milliseconds: the year 2015, before Kafka's records had timestamps."""

K = TypeVar("K")
T = TypeVar("T")


class Batch(NamedTuple):
    """The records that one poll returned for one partition; `position` is the next offset to read."""

    partition: Partition
    records: list[Record]
    position: int


class SourceClosed(Exception):
    """The consumer was stopped."""


class Assignments(Protocol):
    """A listener for assignments."""

    async def assigned(self) -> None: ...

    async def revoked(self) -> None: ...


class Source(Protocol):
    """A consumer of one group. Every error but `SourceClosed` may be temporary."""

    async def start(self, assignments: Assignments) -> None: ...

    async def stop(self) -> None: ...

    async def poll(self, timeout: float, limit: int) -> list[Batch]: ...

    async def commit(self, offsets: Mapping[Partition, int]) -> None: ...

    async def position(self, partition: Partition) -> int: ...

    async def start_of(self, partition: Partition) -> tuple[int | None, int]:
        """The committed offset (None if none) and the log start."""
        ...

    async def end_of(self, partition: Partition) -> int:
        """The log end."""
        ...

    def seek(self, partition: Partition, offset: int) -> None: ...

    def assignment(self) -> frozenset[Partition]: ...

    def evicted(self) -> bool:
        """Whether the group has already given our partitions to other members."""
        ...

    def set_paused(self, paused: set[Partition], assigned: frozenset[Partition]) -> None: ...

    def forget_pauses(self) -> None:
        """A new assignment begins without pauses."""
        ...


class KafkaSource:
    """A `Source` on aiokafka."""

    def __init__(self, make: Callable[[], AIOKafkaConsumer], topics: Iterable[str]) -> None:
        self._make = make
        self._topics = list(topics)
        self._paused: set[Partition] = set()
        self._consumer: AIOKafkaConsumer

    async def start(self, assignments: Assignments) -> None:
        consumer = self._make()
        check_offset_fetches(consumer._client)  # noqa: SLF001 - see there
        consumer.subscribe(self._topics, listener=_Listener(assignments))
        self._consumer = consumer
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise

    async def stop(self) -> None:
        if hasattr(self, "_consumer"):
            await self._consumer.stop()

    async def poll(self, timeout: float, limit: int) -> list[Batch]:
        try:
            polled = await self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=limit)
        except ConsumerStoppedError as error:
            raise SourceClosed from error
        batches, now = [], int(time.time() * 1000)
        for tp, messages in polled.items():
            records = [
                Record(
                    m.topic,
                    m.partition,
                    m.offset,
                    plausible_timestamp(m.timestamp, now),
                    m.key,
                    m.value,
                    tuple(m.headers),
                    _error_of(m),
                )
                for m in messages
            ]
            # Does not suspend: `getmany` has just set it.
            position = await self._consumer.position(tp)
            batches.append(Batch(Partition(tp.topic, tp.partition), records, position))
        return batches

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        metadata = datetime.now(UTC).isoformat(timespec="milliseconds")
        await self._consumer.commit(
            {TopicPartition(*partition): (offset, metadata) for partition, offset in offsets.items()}
        )

    async def position(self, partition: Partition) -> int:
        return int(await self._consumer.position(TopicPartition(*partition)))

    async def start_of(self, partition: Partition) -> tuple[int | None, int]:
        tp = TopicPartition(*partition)
        beginnings, committed = await asyncio.gather(
            self._consumer.beginning_offsets([tp]), self._consumer.committed(tp)
        )
        return committed, beginnings[tp]

    async def end_of(self, partition: Partition) -> int:
        tp = TopicPartition(*partition)
        return int((await self._consumer.end_offsets([tp]))[tp])

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(*tp) for tp in self._consumer.assignment())

    def evicted(self) -> bool:
        # aiokafka resets the generation before it calls the listener; there is no public API for this.
        coordinator = self._consumer._coordinator  # noqa: SLF001
        return coordinator is not None and coordinator.generation < 0

    def set_paused(self, paused: set[Partition], assigned: frozenset[Partition]) -> None:
        for partition in (paused - self._paused) & assigned:
            self._consumer.pause(TopicPartition(*partition))
        for partition in (self._paused - paused) & assigned:
            self._consumer.resume(TopicPartition(*partition))
        self._paused = paused & assigned

    def forget_pauses(self) -> None:
        self._paused = set()


def plausible_timestamp(timestamp: int, now: int) -> int:
    """A record's timestamp, or `now` for one that cannot be true (milliseconds): a producer may write anything, and
    an age of decades, or below zero, would blind every alert.
    """
    return timestamp if OLDEST_TIMESTAMP <= timestamp <= now else now


def _error_of(message: object) -> str:
    return message.error if isinstance(message, UnreadableRecord) else ""


def check_offset_fetches(client: AIOKafkaClient) -> None:
    """Make a client raise the error of an OffsetFetch response as a whole.

    aiokafka ignores it: while the coordinator moves or loads, a group would seem to have committed nothing, and read
    its topics from the start.
    """
    send: Callable[..., Awaitable[Any]] = client.send

    async def checked_send(node_id: int, request: object, **options: Any) -> Any:
        response = await send(node_id, request, **options)
        if isinstance(request, OffsetFetchRequest) and (code := getattr(response, "error_code", 0)):
            raise for_code(code)
        return response

    client.send = checked_send  # type: ignore[method-assign]


async def try_each(ask: Callable[[K], Awaitable[T]], keys: Iterable[K], timeout: float) -> dict[K, T | BaseException]:
    """Ask for each key, side by side; the answer of each, or its error."""

    async def answer(key: K) -> T:
        async with asyncio.timeout(timeout):
            return await ask(key)

    asked = list(keys)
    return dict(zip(asked, await asyncio.gather(*map(answer, asked), return_exceptions=True), strict=True))


async def ask_each(
    ask: Callable[[Partition], Awaitable[T]], partitions: Iterable[Partition], timeout: float
) -> dict[Partition, T]:
    """Ask for each partition, side by side; the answers that come in time. A partition may have no leader."""
    answers = await try_each(ask, partitions, timeout)
    return {partition: answer for partition, answer in answers.items() if not isinstance(answer, BaseException)}


def committed_at(metadata: str | None) -> float | None:
    """When a commit was made, in seconds since the epoch, from the metadata that `KafkaSource` adds to it; None for a
    commit of another client.
    """
    try:
        return datetime.fromisoformat(metadata or "").timestamp()
    except ValueError:
        return None


class _Listener(ConsumerRebalanceListener):
    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        await self._assignments.assigned()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        await self._assignments.revoked()
