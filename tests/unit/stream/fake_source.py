"""A Kafka that a test drives: an in-memory `Source` with aiokafka's ways.

As there: a rebalance makes a new assignment that knows no pauses and reads on from the committed offsets; polls wait
while one is under way, whatever their timeout; a poll that raises has moved positions over records that nobody gets.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from consumer.stream.records import Partition, Record
from consumer.stream.source import Assignments, Batch, SourceClosed
from tests.unit.stream.samples import P0, TOPIC


class FakeSource:
    """One group's consumer, and the logs that it reads.

    Attributes:
        committed: the committed offsets at the broker.
        commits: every commit that arrived, in order.
        failures: each makes one poll raise, after it has taken all records.
        on_commit: awaited before a commit arrives; may hang or raise.
        on_stop, on_start, on_start_of: awaited in `stop`, `start` and `start_of`.
        delivered: offsets that a poll has returned.
    """

    def __init__(self, *partitions: Partition) -> None:
        self.logs: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        self.ends = dict.fromkeys(partitions, 0)
        self.beginnings = dict.fromkeys(partitions, 0)
        self.committed: dict[Partition, int] = {}
        self.commits: list[dict[Partition, int]] = []
        self.failures: list[Exception] = []
        self.on_commit: Callable[[], Awaitable[None]] | None = None
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        self.on_start: Callable[[], Awaitable[None]] | None = None
        self.on_start_of: Callable[[Partition], Awaitable[None]] | None = None
        self.delivered: list[tuple[Partition, int]] = []
        self.paused: set[Partition] = set()
        self._believed: set[Partition] = set()
        self.pauses = 0
        self.polls = 0
        self.gone = False
        self.closed = False
        self._listener: Assignments | None = None
        self._positions: dict[Partition, int] = {}
        self._stable = asyncio.Event()
        self._news = asyncio.Event()

    # What the test does

    def produce(
        self,
        key: bytes | None,
        value: bytes | None = b"v",
        partition: Partition = P0,
        timestamp: int = 0,
        unreadable: str = "",
    ) -> Record:
        offset = self.ends[partition]
        record = Record(TOPIC, partition.number, offset, timestamp, key, value, unreadable=unreadable)
        self.logs[partition].append(record)
        self.ends[partition] += 1
        self._news.set()
        return record

    def hole(self, partition: Partition = P0) -> None:
        """A transaction marker: an offset that is never delivered."""
        self.ends[partition] += 1
        self._news.set()

    def retain_from(self, offset: int, partition: Partition = P0) -> None:
        """Retention removes what is below this offset."""
        self.beginnings[partition] = offset
        self.logs[partition] = [record for record in self.logs[partition] if record.offset >= offset]

    def truncate(self, partition: Partition = P0) -> None:
        """The log is lost; a consumer that was beyond its end reads on from its start."""
        self.logs[partition], self.ends[partition], self.beginnings[partition] = [], 0, 0
        self._positions[partition] = 0

    def go_back(self, partition: Partition = P0) -> None:
        """The consumer resets a position to the log's start, although the log is whole."""
        self._positions[partition] = self.beginnings[partition]
        self._news.set()

    @property
    def listener(self) -> Assignments:
        assert self._listener is not None, "not started"
        return self._listener

    async def revoke(self, *, evicted: bool = False) -> None:
        """The first half of a rebalance; polls wait from now on."""
        self._stable.clear()
        self.gone = evicted
        await self.listener.revoked()

    def assign(self, *partitions: Partition) -> None:
        """The new assignment: polls go on, although the listener is not called yet."""
        self._positions = {p: self.committed.get(p, self.beginnings[p]) for p in partitions}
        self.paused = set()
        self.gone = False
        self._stable.set()
        self._news.set()

    async def rebalance(self, *partitions: Partition) -> None:
        await self.revoke()
        self.assign(*partitions)
        await self.listener.assigned()

    # Source

    async def start(self, assignments: Assignments) -> None:
        self._listener = assignments
        if self.on_start is not None:
            await self.on_start()

    async def stop(self) -> None:
        self.closed = True
        if self.on_stop is not None:
            await self.on_stop()
        self._news.set()

    async def poll(self, timeout: float, limit: int) -> list[Batch]:
        self.polls += 1
        if self.closed:
            raise SourceClosed
        if not self._stable.is_set():
            await self._stable.wait()
        batches = self._fetched(limit)
        if not batches:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout)
            if not self._stable.is_set():
                return []
            batches = self._fetched(limit)
        self.delivered += [(batch.partition, record.offset) for batch in batches for record in batch.records]
        return batches

    def _fetched(self, limit: int) -> list[Batch]:
        batches = self._take(limit)
        if self.failures:
            raise self.failures.pop(0)
        return batches

    def _take(self, limit: int) -> list[Batch]:
        batches = []
        for partition, position in self._positions.items():
            if partition in self.paused:
                continue
            position = max(position, self.beginnings[partition])  # noqa: PLW2901 - out of range: to the earliest
            ahead = [record for record in self.logs[partition] if record.offset >= position]
            records, left = ahead[:limit], ahead[limit:]
            self._positions[partition] = left[0].offset if left else self.ends[partition]
            if records:
                batches.append(Batch(partition, records, self._positions[partition]))
        return batches

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        if self.on_commit is not None:
            await self.on_commit()
        assert offsets.keys() <= self._positions.keys(), "a commit for partitions that are not ours"
        self.commits.append(dict(offsets))
        self.committed |= offsets

    async def position(self, partition: Partition) -> int:
        return self._positions[partition]

    async def start_of(self, partition: Partition) -> tuple[int | None, int]:
        if self.on_start_of is not None:
            await self.on_start_of(partition)
        return self.committed.get(partition), self.beginnings[partition]

    async def end_of(self, partition: Partition) -> int:
        return self.ends[partition]

    def seek(self, partition: Partition, offset: int) -> None:
        assert partition in self._positions, "a seek in a partition that is not ours"
        self._positions[partition] = offset
        self._news.set()

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._positions)

    def evicted(self) -> bool:
        return self.gone

    def set_paused(self, paused: set[Partition], assigned: frozenset[Partition]) -> None:
        assert assigned <= self._positions.keys(), "a pause of a partition that is not ours"
        self.pauses += len((paused & assigned) - self._believed)
        self.paused |= (paused & assigned) - self._believed
        self.paused -= self._believed - paused
        self._believed = paused & assigned
        self._news.set()

    def forget_pauses(self) -> None:
        self._believed = set()
