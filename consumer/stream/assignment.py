"""The partitions of a lane, without I/O: what was delivered, what may be committed, what to pause, where to read next.

State that outlives an assignment, for partitions that come back after a rebalance, is kept here too.
"""

from collections.abc import Iterable, Mapping

from consumer.stream.backpressure import BackpressureLimits, PartitionLoad
from consumer.stream.key_queues import KeyQueues
from consumer.stream.offsets import CompletedOffsets, OffsetTracker
from consumer.stream.records import FallbackKey, Partition, Record, WorkItem


class Assignment:
    """The partitions that the group has assigned to a lane, and their unfinished records.

    Attributes:
        epoch: moves with each assignment.
        stopped: whether nothing more may start.
        trackers: the offsets of each partition that was located.
        keys: the unfinished records.
        failed_polls: how many polls raised.
    """

    def __init__(self, limits: BackpressureLimits, fallback_key: FallbackKey) -> None:
        self.epoch = 0
        self.stopped = True
        self.trackers: dict[Partition, OffsetTracker] = {}
        self.keys = KeyQueues()
        self.failed_polls = 0
        self._limits = limits
        self._fallback_key = fallback_key
        self._loads: dict[Partition, PartitionLoad] = {}
        self._completed: dict[Partition, CompletedOffsets] = {}
        self._unfinished: dict[tuple[Partition, int], WorkItem] = {}
        self._assigned: frozenset[Partition] = frozenset()
        self._positions_in_doubt = False
        self._rewound: set[Partition] = set()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Begin an assignment, after ending the previous one."""
        self.revoke()
        self._assigned = frozenset(partitions)
        self._completed = {p: done for p, done in self._completed.items() if p in self._assigned}
        self._unfinished = {at: item for at, item in self._unfinished.items() if at[0] in self._assigned}
        self._rewound = set()
        self.stopped = False

    def stop(self) -> None:
        """Start nothing more; records in flight may still finish and count."""
        self.stopped = True

    def revoke(self) -> None:
        """End the assignment: drop its records, but keep what is done and tried of partitions that come back."""
        self.stopped = True
        self.epoch += 1
        if self._assigned:
            self._completed |= {p: done for p, t in self.trackers.items() if (done := t.completed())}
            for item in self.keys.items():
                if item.has_history:
                    self._unfinished[item.partition, item.record.offset] = item
        self._assigned = frozenset()
        self.trackers = {}
        self._loads = {}
        self.keys = KeyQueues()

    @property
    def assigned(self) -> frozenset[Partition]:
        """The partitions of the current assignment."""
        return self._assigned

    # Records in

    def deliver(self, partition: Partition, records: list[Record], position: int) -> None:
        """Take the records that a poll returned for a partition, in order, and the position after them.

        Records of a partition that is not assigned are dropped; its owner gets them. So are those of a partition in
        doubt; they are read again after its rewind.
        """
        if partition not in self._assigned or partition in self.in_doubt() or not records:
            return
        tracker = self.locate(partition, records[0].offset)
        unprocessed = set(tracker.deliver([record.offset for record in records], position))
        load = self._loads[partition]
        for record in records:
            if record.offset in unprocessed:
                load.add(record.size)
                fallback_key = self._fallback_key(record) if record.key is None else None
                item = WorkItem(record, self.epoch, fallback_key)
                if earlier := self._unfinished.pop((partition, record.offset), None):
                    item.carry_over(earlier)
                self.keys.add(item)

    def is_behind(self, partition: Partition, records: list[Record]) -> bool:
        """Whether these records lie below what this partition already delivered.

        The consumer went back by itself: an unclean election or a lost disk may have truncated the log.
        """
        tracker = self.trackers.get(partition)
        return tracker is not None and bool(records) and records[0].offset < tracker.position

    def reset(self, truncated: Mapping[Partition, int]) -> None:
        """Restart the assignment with these partitions at these positions; keep the others' completed offsets."""
        assigned = self._assigned
        self.revoke()
        for partition in truncated:
            self._completed.pop(partition, None)
        self._unfinished = {at: item for at, item in self._unfinished.items() if at[0] not in truncated}
        self.assign(assigned)
        for partition, position in truncated.items():
            self.locate(partition, position)

    def locate(self, partition: Partition, position: int) -> OffsetTracker:
        """The tracker of an assigned partition; a new one begins at `position`."""
        tracker = self.trackers.get(partition)
        if tracker is None:
            tracker = OffsetTracker(position, self._completed.pop(partition, None))
            self.trackers[partition] = tracker
            self._loads[partition] = PartitionLoad(self._limits.share(len(self._assigned)))
        return tracker

    # Rewinds

    def poll_failed(self) -> None:
        """A poll raised: the consumer's positions may have moved over records that it never returned."""
        self._positions_in_doubt = True
        self._rewound = set()
        self.failed_polls += 1

    def in_doubt(self) -> frozenset[Partition]:
        """The partitions whose position may lie beyond what was delivered, because a poll failed."""
        return self._assigned - self._rewound if self._positions_in_doubt else frozenset()

    def rewind(self, epoch: int, partition: Partition, position: int | None, start: int) -> int | None:
        """Take a partition out of doubt. The caller must seek before anything else runs.

        Args:
            epoch: when `position` and `start` were asked for.
            position: the consumer's; None if unknown.
            start: where a partition without a tracker begins.

        Returns:
            where to seek; None if the position is right, or the assignment is over.
        """
        if epoch != self.epoch:
            return None
        tracker = self.locate(partition, start)
        self._rewound.add(partition)
        if self._assigned == self._rewound:
            self._positions_in_doubt = False
        return None if tracker.position == position else tracker.position

    # Offsets and pauses

    def committable(self) -> dict[Partition, int]:
        """The offsets to commit, of partitions that have new ones."""
        return {partition: tracker.committable for partition, tracker in self.trackers.items() if tracker.dirty}

    def mark_committed(self, epoch: int, offsets: Mapping[Partition, int]) -> None:
        """The broker acknowledged a commit of `committable` offsets of this epoch."""
        if epoch == self.epoch:
            for partition, offset in offsets.items():
                tracker = self.trackers[partition]
                tracker.committed = max(tracker.committed, offset)

    def paused(self) -> set[Partition]:
        """The partitions that must not be read now."""
        return {p for p, load in self._loads.items() if load.update(self.trackers[p].pending_count)}

    def oldest(self) -> float:
        """Timestamp in seconds of the oldest unfinished record; 0 if none."""
        return min((item.record.timestamp for item in self.keys.items()), default=0) / 1000

    def waiting(self, now: float) -> dict[Partition, float]:
        """The partitions that cannot be committed because their first unfinished record waits by design (`NotYet`).

        Returns:
            of each, the age in seconds of the oldest unfinished record that does not wait; 0 if all wait.
        """
        if not any(load.waiting_records for load in list(self._loads.values())):
            return {}
        first: dict[Partition, tuple[int, bool]] = {}
        oldest = dict.fromkeys(self._loads, now)
        for queue in self.keys.queues():
            partition, waits = queue[0].partition, queue[0].not_yet_count > 0
            first[partition] = min(
                first.get(partition, (queue[0].record.offset, waits)), (queue[0].record.offset, waits)
            )
            if not waits:
                oldest[partition] = min(oldest[partition], *(item.record.timestamp / 1000 for item in queue))
        return {partition: now - oldest[partition] for partition, (_, waits) in first.items() if waits}

    def buffered(self) -> int:
        """How many unfinished records are not in flight."""
        return sum(load.records for load in list(self._loads.values())) - self.keys.running
