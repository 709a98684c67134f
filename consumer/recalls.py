"""Run → recalled memories: the topic that the worker writes, and the map of it that the tools read."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from pydantic import ValidationError

from consumer.publisher import Publisher
from schemas.codec import decode, encode
from schemas.recalls import RecallRecord


class TopicRecalls:
    """The handlers' `Recalls`, written to the recalls topic. Key: runId; the last record of a run wins."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    async def publish(self, record: RecallRecord) -> None:
        """Write what was recalled for a run."""
        await self._publisher.publish(self._topic, record.run_id.encode(), encode(record))

    async def end(self, run_id: str) -> None:
        """Write a tombstone: the run is over."""
        await self._publisher.publish(self._topic, run_id.encode(), None)


class RecallMap:
    """The recalled memories of recent runs, bounded by number and by age of `recalledAt`.

    Args:
        limit: how many runs are held; the ones recalled first go first.
        max_age: seconds after `recalledAt` for which a run is held.
        now: seconds since the epoch.
    """

    def __init__(self, limit: int, max_age: float, now: Callable[[], float]) -> None:
        self._limit = limit
        self._max_age = max_age
        self._now = now
        self._records: OrderedDict[str, tuple[float, RecallRecord]] = OrderedDict()

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of the topic; what cannot be read is passed over: nobody can be shown it."""
        if key is None:
            return
        run_id = key.decode("utf-8", "replace")
        self._records.pop(run_id, None)
        if value is None:
            return
        try:
            record = RecallRecord.model_validate(decode(value))
            recalled_at = datetime.fromisoformat(record.recalled_at)
        except (ValueError, ValidationError):
            return
        if recalled_at.tzinfo is None:
            recalled_at = recalled_at.replace(tzinfo=UTC)
        if record.run_id != run_id:
            return
        self._records[run_id] = (recalled_at.timestamp(), record)
        self._shed()

    def _shed(self) -> None:
        oldest_allowed = self._now() - self._max_age
        while self._records:
            run_id, (recalled_at, _) = next(iter(self._records.items()))
            if len(self._records) <= self._limit and recalled_at >= oldest_allowed:
                return
            del self._records[run_id]

    def get(self, run_id: str) -> RecallRecord | None:
        """The record of a run; None if there is none, it has expired, or it ended."""
        held = self._records.get(run_id)
        if held is None or held[0] < self._now() - self._max_age:
            return None
        return held[1]

    def __len__(self) -> int:
        return len(self._records)


class RecallReader:
    """Follows the whole recalls topic into a `RecallMap`, without a group: every instance reads everything.

    Attributes:
        caught_up: set once the end offsets taken at the start are reached; until then a missing run means nothing.
    """

    def __init__(self, make: Callable[[], AIOKafkaConsumer], topic: str, recalls: RecallMap) -> None:
        self._make = make
        self._topic = topic
        self._recalls = recalls
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            KafkaError: the topic cannot be read.
        """
        consumer = self._make()
        try:
            await consumer.start()
            partitions = await _partitions(consumer, self._topic)
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            await self._follow(consumer, ends)
        finally:
            await consumer.stop()

    async def _follow(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
        behind = {tp for tp, end in ends.items() if end > 0}
        while True:
            if behind:
                behind = {tp for tp in behind if await consumer.position(tp) < ends[tp]}
            if not behind:
                self.caught_up.set()
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                for message in messages:
                    self._recalls.apply(message.key, message.value)


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    while not (numbers := consumer.partitions_for_topic(topic)):
        await consumer._client.force_metadata_update()  # noqa: SLF001 - a topic that is not there yet will be
        await asyncio.sleep(1)
    return [TopicPartition(topic, number) for number in numbers]
