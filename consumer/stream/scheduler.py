"""The decisions of a lane, without I/O: what to start, what a result means, what to commit, what to pause.

`Lane` polls, runs jobs, writes dead letters and commits; it consults the scheduler at every step. All times are seconds
on one clock and passed in.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from consumer.errors import DeadLetterReason, DownKind, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Degraded, Done, HandlerResult, Skipped, SkipReason
from consumer.stream.backpressure import BackpressureLimits, PartitionLoad
from consumer.stream.breaker import Breaker
from consumer.stream.dead_letter_writer import describe_error
from consumer.stream.hooks import AttemptOutcome, BreakerReason, ParkReason
from consumer.stream.key_queues import KeyQueues
from consumer.stream.offsets import CompletedOffsets, OffsetTracker
from consumer.stream.records import FallbackKey, Key, Partition, Record, WorkItem
from consumer.stream.retry import RetryPolicy

Result = HandlerResult | Exception | None
"""A job's result: an outcome, an error, or None for a record that is ignored."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a result means for its record. With `dead_letter`, one must be written before the record is done."""

    outcome: AttemptOutcome
    reason: SkipReason | Upstream | DeadLetterReason | ParkReason | None = None
    delay: float = 0.0
    dead_letter: bool = False


class LaneScheduler:
    """The state of one lane over its assignments.

    Args:
        limit: how many records may be in flight.
        fallback_key: orders records that have no key.
    """

    def __init__(
        self,
        limit: int,
        retry: RetryPolicy,
        limits: BackpressureLimits,
        fallback_key: FallbackKey = lambda _record: None,
    ) -> None:
        self.limit = limit
        self.epoch = 0
        self.stopped = True
        self.trackers: dict[Partition, OffsetTracker] = {}
        self.keys = KeyQueues()
        self.breakers = {upstream: Breaker(upstream) for upstream in Upstream}
        self._retry = retry
        self._limits = limits
        self._fallback_key = fallback_key
        self._loads: dict[Partition, PartitionLoad] = {}
        self._completed: dict[Partition, CompletedOffsets] = {}
        self._unfinished: dict[tuple[Partition, int], WorkItem] = {}
        self._assigned: frozenset[Partition] = frozenset()
        self._probe: WorkItem | None = None
        self._positions_in_doubt = False
        self._rewound: set[Partition] = set()
        self.failed_polls = 0

    # Assignments

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
        self._probe = None

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

    # Work

    def start(self, now: float) -> WorkItem | None:
        """The next record to process; None if none may start now."""
        if self.stopped or self.keys.running >= self.limit:
            return None
        self.keys.unpark_due(now)
        blocking = [breaker for breaker in self.breakers.values() if breaker.reason is not None]
        item = self._start_blocked(blocking, now) if blocking else self.keys.start()
        if item is not None:
            item.started = now
            if item.waiting:
                item.waiting = False
                self._loads[item.partition].resume(item.record.size)
        return item

    def _start_blocked(self, blocking: list[Breaker], now: float) -> WorkItem | None:
        if any(breaker.wait_until() > now for breaker in blocking):
            return None
        is_probe = any(breaker.open for breaker in blocking)
        if is_probe and self._probe is not None:
            return None
        item = self.keys.start()
        if item is None:
            return None
        for breaker in blocking:
            breaker.record_start(now)
        if is_probe:
            self._probe = item
        return item

    def next_wake(self, now: float) -> float | None:
        """When `start` may return a record without a new record or result; None for never."""
        if self.stopped or self.keys.running >= self.limit:
            return None
        times = [due] if (due := self.keys.next_due()) is not None else []
        if self.keys.ready and self._probe is None:
            gate = max(breaker.wait_until() for breaker in self.breakers.values())
            if gate > now:
                times.append(gate)
        return min(times, default=None)

    def finish(  # noqa: PLR0911 - one return for each kind of result
        self, item: WorkItem, result: Result, answered: Set[Upstream], now: float
    ) -> Decision | None:
        """Decide what the result of a started record means for it. None if the record belongs to another epoch.

        Args:
            answered: the upstreams that gave the job a good answer.
        """
        if item.epoch != self.epoch:
            return None
        was_probe = self._probe is item
        if was_probe:
            self._probe = None
        for upstream in answered:
            self.breakers[upstream].record_answer()
        if not isinstance(result, Exception):
            return self._succeed(item, result, answered, was_probe)
        item.error = describe_error(result)
        item.first_failure = item.first_failure or now
        match result:
            case Permanent():
                if result.upstream is not None:
                    self.breakers[result.upstream].record_refusal(now)
                return self._dead_letter(item, result.reason)
            case UpstreamDown():
                assert result.upstream is not None  # noqa: S101 - its constructor demands one
                return self._down(item, result.upstream, result.kind, now)
            case NotYet():
                return self._wait(item, now)
            case Transient():
                return self._fail(item, result.upstream, result.retry_after, now)
            case _:
                return self._fail(item, None, None, now)

    def _succeed(
        self, item: WorkItem, result: HandlerResult | None, answered: Set[Upstream], was_probe: bool
    ) -> Decision:
        self._complete(item)
        for breaker in self.breakers.values():
            if was_probe or breaker.reason is BreakerReason.THROTTLED:
                breaker.allow_next_probe()
        match result:
            case Done():
                for upstream, breaker in self.breakers.items():
                    breaker.record_success(helped=upstream in answered)
                return Decision(AttemptOutcome.SUCCEEDED)
            case Degraded(upstream=upstream):
                return Decision(AttemptOutcome.FAILED, upstream)
            case Skipped(reason=reason):
                return Decision(AttemptOutcome.SKIPPED, reason)
            case _:
                return Decision(AttemptOutcome.IGNORED)

    def _down(self, item: WorkItem, upstream: Upstream, kind: DownKind, now: float) -> Decision:
        """The upstream serves nobody; or all but this record, if others have succeeded since it last drew this."""
        breaker = self.breakers[upstream]
        others_succeeded = item.seen_successes is not None and item.seen_successes < breaker.successes
        item.seen_successes = breaker.successes
        if breaker.open or not others_succeeded:
            breaker.record_down(kind, now)
            return self._refund(item, upstream)
        forbidden = kind is DownKind.REFUSED
        reason = DeadLetterReason.FORBIDDEN if forbidden else DeadLetterReason.ATTEMPTS_EXHAUSTED
        return self._charge(item, upstream, None, now, reason)

    def _fail(self, item: WorkItem, upstream: Upstream | None, retry_after: float | None, now: float) -> Decision:
        if upstream is not None:
            breaker = self.breakers[upstream]
            if not item.exempt_from_breaker and breaker.record_failure(item.key, now):
                self._refund_all(upstream, breaker.failing)
            if breaker.open:
                return self._refund(item, upstream)
        return self._charge(item, upstream, retry_after, now, DeadLetterReason.ATTEMPTS_EXHAUSTED)

    def _charge(
        self,
        item: WorkItem,
        upstream: Upstream | None,
        retry_after: float | None,
        now: float,
        reason: DeadLetterReason,
    ) -> Decision:
        """Count a failed attempt; after the last one, the record becomes a dead letter for this reason."""
        item.attempts += 1
        if item.attempts >= self._retry.max_attempts:
            return self._dead_letter(item, reason)
        delay = self._retry.delay(item.attempts, retry_after)
        self.keys.park(item.key, now + delay, ParkReason.RETRY, upstream)
        return Decision(AttemptOutcome.RETRIED, ParkReason.RETRY, delay)

    def _refund(self, item: WorkItem, upstream: Upstream) -> Decision:
        item.exempt_from_breaker = True
        self.keys.retry(item.key)
        self.keys.unpark_failed(upstream)
        return Decision(AttemptOutcome.RETRIED)

    def _refund_all(self, upstream: Upstream, failing: Set[Key]) -> None:
        """A breaker opened on these keys: refund the last attempt of those that are parked."""
        for item in self.keys.unpark_failed(upstream):
            if item.key in failing:
                item.attempts -= 1
                item.exempt_from_breaker = True

    def _wait(self, item: WorkItem, now: float) -> Decision:
        if self._retry.is_overdue(now - item.record.timestamp / 1000, item.waited):
            return self._dead_letter(item, DeadLetterReason.DEADLINE_EXCEEDED)
        item.not_yet_count += 1
        delay = self._retry.delay(item.not_yet_count)
        item.waited += delay
        item.waiting = True
        self._loads[item.partition].wait(item.record.size)
        self.keys.park(item.key, now + delay, ParkReason.NOT_YET)
        return Decision(AttemptOutcome.RETRIED, ParkReason.NOT_YET, delay)

    def _dead_letter(self, item: WorkItem, reason: DeadLetterReason) -> Decision:
        item.dead_letter_reason = reason
        return Decision(AttemptOutcome.DEAD_LETTERED, reason, dead_letter=True)

    def dead_letter_written(self, item: WorkItem) -> bool:
        """The dead letter is acknowledged: the record is done. False if it belongs to another epoch."""
        if item.epoch != self.epoch:
            return False
        if self._probe is item:
            self._probe = None
        self._complete(item)
        return True

    def dead_letter_failed(self, item: WorkItem, now: float) -> float | None:
        """Park a record whose dead letter could not be written. Seconds until the next try; None for another epoch."""
        if item.epoch != self.epoch:
            return None
        if self._probe is item:
            self._probe = None
        item.write_attempts += 1
        delay = self._retry.delay(item.write_attempts)
        self.keys.park(item.key, now + delay, ParkReason.DEAD_LETTER_UNAVAILABLE)
        return delay

    def _complete(self, item: WorkItem) -> None:
        self.keys.finish(item.key)
        self.trackers[item.partition].done(item.record.offset)
        self._loads[item.partition].remove(item.record.size)

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
