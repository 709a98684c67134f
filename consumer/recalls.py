"""The recalls topic: memories by run, written by the worker and cached by the tools."""

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from cachetools import TLRUCache

from consumer.kafka.producer import Publisher
from consumer.kafka.topic_reader import read_until
from schemas.codec import decode, encode
from schemas.recalls import RecallRecord
from schemas.timestamps import parse_timestamp


class RecallPublisher:
    """Writes the recalls topic for the handlers. The key is the runId; the last record of a run counts."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def publish(self, record: RecallRecord) -> None:
        """Write the memories recalled for a run."""
        await self._publisher.publish(self._topic, record.run_id.encode(), encode(record))

    async def publish_tombstone(self, run_id: str) -> None:
        """Write a tombstone for a run that has ended."""
        await self._publisher.publish(self._topic, run_id.encode(), None)


class RecallCache:
    """The recalled memories of recent runs, limited in number, bytes and age.

    Records are kept as bytes and parsed again on `get`: as objects they would take twice the memory, and every garbage
    collection would traverse them.

    Args:
        runs: maximum number of runs; the least recently used are evicted.
        size: maximum size of all records, in bytes as they are on the topic.
        max_age: seconds after `recalledAt` at which a record expires.
        now: returns seconds since the epoch.
    """

    def __init__(self, *, runs: int, size: int, max_age: float, now: Callable[[], float]) -> None:
        self._runs = runs
        self._records: TLRUCache[str, tuple[float, bytes]] = TLRUCache(
            size, ttu=lambda _run, record, _now: record[0] + max_age, timer=now, getsizeof=lambda record: len(record[1])
        )

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the topic; the last one of a run counts.

        An unreadable record removes the run as a tombstone does: the record that it replaces is out of date.
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
        """Return the record of a run; None if there is none, it has expired, or the run has ended."""
        record = self._records.get(run_id)
        return None if record is None else RecallRecord.model_validate(decode(record[1]))

    def clear(self) -> None:
        """Remove all records, before the topic is read from its beginning again."""
        self._records.clear()

    def __len__(self) -> int:
        return len(self._records)


def _recalled_at(run_id: str, value: bytes | None) -> float | None:
    """Return the time of a recall in seconds since the epoch; None for a tombstone or an unreadable record."""
    if value is None:
        return None
    try:
        record = RecallRecord.model_validate(decode(value))
        return parse_timestamp(record.recalled_at) if record.run_id == run_id else None
    except ValueError:
        return None


class RecallReader:
    """Reads the whole recalls topic into a `RecallCache`. It has no consumer group: each instance reads everything.

    Args:
        make_consumer: makes a consumer that is subscribed to the topic, without a group, from the earliest record.
        warn: tells the operator (event name and fields).
        pause: seconds between a failure and the next attempt.

    Attributes:
        caught_up: set once the end offsets of the start are reached; until then an absent run proves nothing.
    """

    def __init__(
        self,
        make_consumer: Callable[[], AIOKafkaConsumer],
        cache: RecallCache,
        warn: Callable[..., None],
        pause: float = 5.0,
    ) -> None:
        self._make_consumer = make_consumer
        self._cache = cache
        self._warn = warn
        self._pause = pause
        self.caught_up = asyncio.Event()

    def get(self, run_id: str) -> RecallRecord | None:
        """Return the record of a run; None until the cache has caught up, as the run may have ended since."""
        return self._cache.get(run_id) if self.caught_up.is_set() else None

    async def run(self) -> None:
        """Read until cancelled. After a failure the cache is cleared, and the topic is read from its beginning."""
        while True:
            try:
                await self._read()
            except (KafkaError, OSError) as error:
                self.caught_up.clear()
                self._cache.clear()
                reason = str(error) or type(error).__name__
                self._warn("cannot read the recalls topic: tools recall live", error=reason)
            await asyncio.sleep(self._pause)

    async def _read(self) -> None:
        consumer = self._make_consumer()
        try:
            await consumer.start()
            await self._follow(consumer)
        finally:
            await consumer.stop()

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        assignment: frozenset[TopicPartition] = frozenset()
        while True:
            if consumer.assignment() != assignment:  # at the start, and after partitions were added
                self.caught_up.clear()
                assignment = consumer.assignment()
                async for message in read_until(consumer, await consumer.end_offsets(assignment)):
                    self._cache.apply(message.key, message.value)
                if assignment:
                    self.caught_up.set()
            for messages in (await consumer.getmany(timeout_ms=500, max_records=500)).values():
                for message in messages:
                    self._cache.apply(message.key, message.value)
            self._cache.evict()
