"""Run → recalled memories: the topic that the worker writes, and the map of it that the tools read."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from cachetools import TLRUCache

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
    """The recalled memories of recent runs, bounded by number, by bytes and by age.

    Records are kept as encoded in the topic and decoded when they are asked for: tens of thousands of them as objects
    would take twice the memory, and every garbage collection would walk through them.

    Args:
        runs: maximum number of runs; the least recently used are evicted first.
        size: maximum bytes of their records together, as encoded in the topic.
        max_age: seconds after `recalledAt` until a record expires.
        now: seconds since the epoch.
    """

    def __init__(self, *, runs: int, size: int, max_age: float, now: Callable[[], float]) -> None:
        self._runs = runs
        self._records: TLRUCache[str, tuple[float, bytes]] = TLRUCache(
            size, ttu=lambda _run, entry, _now: entry[0] + max_age, timer=now, getsizeof=lambda entry: len(entry[1])
        )

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic; the last one of a run wins.

        A record that cannot be decoded removes the run as a tombstone does: the record that it replaces is outdated.
        """
        if key is None:
            return
        run_id = key.decode("utf-8", "replace")
        self._records.pop(run_id, None)
        recalled_at = _recalled_at(run_id, value)
        if value is not None and recalled_at is not None and len(value) <= self._records.maxsize:
            self._records[run_id] = (recalled_at, value)
        while len(self._records) > self._runs:
            self._records.popitem()

    def evict(self) -> None:
        """Evict expired records."""
        self._records.expire()

    def get(self, run_id: str) -> RecallRecord | None:
        """The record of a run; None if there is none, it has expired, or the run has ended."""
        entry = self._records.get(run_id)
        return None if entry is None else RecallRecord.model_validate(decode(entry[1]))

    def clear(self) -> None:
        """Remove all runs: the topic is read again from its start."""
        self._records.clear()

    def __len__(self) -> int:
        return len(self._records)


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
            self._recalls.evict()
