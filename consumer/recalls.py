"""Run → recalled memories: the topic that the worker writes, and the map of it that the tools read."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from consumer.kafka.producer import Publisher
from consumer.kafka.topic_reader import read_until
from schemas.codec import decode, encode
from schemas.recalls import RecallRecord


class RecallPublisher:
    """The handlers' `Recalls`, written to the recalls topic. Key: runId; the last record of a run wins."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def publish(self, record: RecallRecord) -> None:
        """Write what was recalled for a run."""
        await self._publisher.publish(self._topic, record.run_id.encode(), encode(record))

    async def publish_tombstone(self, run_id: str) -> None:
        """Write a tombstone for a run that has ended."""
        await self._publisher.publish(self._topic, run_id.encode(), None)


class RecallCache:
    """The recalled memories of recent runs: bounded by number, by bytes and by age.

    Records are held as they stand on the topic and read again when they are asked for: tens of thousands of them as
    objects would take twice the memory, and every garbage collection would walk through them.

    Args:
        runs: how many runs are held at most; those that came first go first.
        size: how many bytes their records may have together, as they stand on the topic.
        max_age: seconds after `recalledAt` for which a run is held.
        now: seconds since the epoch.
    """

    def __init__(self, *, runs: int, size: int, max_age: float, now: Callable[[], float]) -> None:
        self._runs = runs
        self._room = size
        self._max_age = max_age
        self._now = now
        self._held: OrderedDict[str, tuple[float, bytes]] = OrderedDict()  # when recalled, and the record

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of the topic; the last one of a run wins.

        One that cannot be read ends the run as a tombstone does: what it was to replace is no longer true.
        """
        if key is None:
            return
        run_id = key.decode("utf-8", "replace")
        self._drop(run_id)
        recalled_at = _recalled_at(run_id, value)
        if value is not None and recalled_at is not None and self._young(recalled_at):
            self._held[run_id] = (recalled_at, value)
            self._room -= len(value)
        self.shed()

    def shed(self) -> None:
        """Let go of what is too old or too much."""
        while self._held:
            run_id, (recalled_at, _) = next(iter(self._held.items()))
            if len(self._held) <= self._runs and self._room >= 0 and self._young(recalled_at):
                return
            self._drop(run_id)

    def get(self, run_id: str) -> RecallRecord | None:
        """The record of a run; None if there is none, it has expired, or it ended."""
        recalled_at, value = self._held.get(run_id, (0.0, b""))
        return RecallRecord.model_validate(decode(value)) if value and self._young(recalled_at) else None

    def clear(self) -> None:
        """Forget all runs: the topic is read again from its start."""
        for run_id in list(self._held):
            self._drop(run_id)

    def __len__(self) -> int:
        return len(self._held)

    def _young(self, recalled_at: float) -> bool:
        return recalled_at >= self._now() - self._max_age

    def _drop(self, run_id: str) -> None:
        held = self._held.pop(run_id, None)
        if held is not None:
            self._room += len(held[1])


def _recalled_at(run_id: str, value: bytes | None) -> float | None:
    """When a record was made, seconds since the epoch; None for a tombstone, and for what is no record of this run."""
    if value is None:
        return None
    try:
        record = RecallRecord.model_validate(decode(value))
        recalled_at = datetime.fromisoformat(record.recalled_at)
    except ValueError:
        return None
    if recalled_at.tzinfo is None:
        recalled_at = recalled_at.replace(tzinfo=UTC)
    return recalled_at.timestamp() if record.run_id == run_id else None


class RecallReader:
    """Follows the whole recalls topic into a `RecallCache`, without a group: every instance reads everything.

    Args:
        make: makes a consumer that is subscribed to the topic, without a group, and starts at the earliest record.
        warn: says something to the operator (event name and fields).
        pause: seconds from a failure to the next try.

    Attributes:
        caught_up: set once the end offsets taken at the start are reached; until then a missing run means nothing.
    """

    def __init__(
        self,
        make: Callable[[], AIOKafkaConsumer],
        recalls: RecallCache,
        warn: Callable[..., None],
        pause: float = 5.0,
    ) -> None:
        self._make = make
        self._recalls = recalls
        self._warn = warn
        self._pause = pause
        self.caught_up = asyncio.Event()

    def get(self, run_id: str) -> RecallRecord | None:
        """The record of a run; None, too, until the map has caught up: a run that ended might still stand there."""
        return self._recalls.get(run_id) if self.caught_up.is_set() else None

    async def run(self) -> None:
        """Read until cancelled. A topic that cannot be read is tried again, from its start: the map is empty then."""
        while True:
            try:
                await self._read_all()
            except (KafkaError, OSError) as error:
                self.caught_up.clear()
                self._recalls.clear()
                reason = str(error) or type(error).__name__
                self._warn("the recalls topic cannot be read: memories are asked for live", error=reason)
            await asyncio.sleep(self._pause)

    async def _read_all(self) -> None:
        consumer = self._make()
        try:
            await consumer.start()
            await self._follow(consumer)
        finally:
            await consumer.stop()

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        assigned: frozenset[TopicPartition] = frozenset()
        while True:
            if consumer.assignment() != assigned:  # at the start, and when partitions were added
                self.caught_up.clear()
                assigned = consumer.assignment()
                async for message in read_until(consumer, await consumer.end_offsets(assigned)):
                    self._recalls.apply(message.key, message.value)
                if assigned:
                    self.caught_up.set()
            for messages in (await consumer.getmany(timeout_ms=500, max_records=500)).values():
                for message in messages:
                    self._recalls.apply(message.key, message.value)
            self._recalls.shed()
