"""A lane's decisions, without any I/O: what to start, what a result means, what to commit, what to pause.

The shell around it (`lane`) polls, runs jobs, writes dead letters and commits; it asks this core at every step. All
times are seconds on one clock, handed in.
"""

import traceback
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import PurePath

from consumer.errors import DeadLetterReason, HandlingError, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Done, FailReason, Outcome, Skipped, SkipReason
from consumer.stream.breaker import Breaker
from consumer.stream.items import Item, Key
from consumer.stream.keys import KeyQueues
from consumer.stream.offsets import Completed, OffsetTracker
from consumer.stream.pressure import Limits, Pressure
from consumer.stream.records import Partition, Record
from consumer.stream.retry import RetryPolicy
from consumer.stream.signals import BreakerReason, Ending, ParkReason

Result = Outcome | Exception | None
"""What a job came to: an outcome, an error, or None for a record that means nothing here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a result means for its record. With `dead` a dead letter must be written before the record is done."""

    ending: Ending
    reason: SkipReason | FailReason | DeadLetterReason | ParkReason | None = None
    delay: float = 0.0
    dead: bool = False


def in_words(error: Exception) -> str:
    """An error for the log and the dead letter; of those that are not ours, which may quote a body, only the place."""
    if isinstance(error, HandlingError):
        return str(error) or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return type(error).__name__ + place


class LaneCore:
    """The state of one lane over its assignments.

    Args:
        limit: how many records may be in flight.
    """

    def __init__(self, limit: int, retry: RetryPolicy, limits: Limits) -> None:
        self.limit = limit
        self.epoch = 0
        self.stopped = True
        self.trackers: dict[Partition, OffsetTracker] = {}
        self.keys = KeyQueues()
        self.breakers = {upstream: Breaker(upstream) for upstream in Upstream}
        self._retry = retry
        self._limits = limits
        self._pressure: dict[Partition, Pressure] = {}
        self._completed: dict[Partition, Completed] = {}
        self._assigned: frozenset[Partition] = frozenset()
        self._probe: Item | None = None

    # Assignments

    def assign(self, partitions: Iterable[Partition]) -> None:
        """A new assignment has begun; what is left of the one before is dropped first."""
        self.revoke()
        self._assigned = frozenset(partitions)
        self._completed = {p: done for p, done in self._completed.items() if p in self._assigned}
        self.stopped = False

    def stop(self) -> None:
        """Start nothing any more; what is in flight may still end and count."""
        self.stopped = True

    def revoke(self) -> None:
        """The assignment is over: forget its records, keep what is done of it for the next, which may hold it too."""
        self.stopped = True
        self.epoch += 1
        if self._assigned:
            self._completed |= {p: done for p, t in self.trackers.items() if (done := t.completed())}
        self._assigned = frozenset()
        self.trackers = {}
        self._pressure = {}
        self.keys = KeyQueues()
        self._probe = None

    @property
    def assigned(self) -> frozenset[Partition]:
        """The partitions of the running assignment."""
        return self._assigned

    # Records in

    def deliver(self, partition: Partition, records: list[Record], position: int) -> None:
        """Take the records that one poll delivered of a partition, in order, and the position after them.

        Records of a partition that is not assigned are dropped: its owner will be given them.
        """
        if partition not in self._assigned or not records:
            return
        tracker = self.locate(partition, records[0].offset)
        fresh = set(tracker.deliver([record.offset for record in records], position))
        pressure = self._pressure[partition]
        for record in records:
            if record.offset in fresh:
                pressure.add(record.size)
                self.keys.add(Item(record, self.epoch))

    def rewound(self, partition: Partition, records: list[Record]) -> bool:
        """Whether these records lie before what was delivered of their partition already.

        Its log is not what it was: an unclean election or a lost disk cut it off, and Kafka has filled it anew.
        """
        tracker = self.trackers.get(partition)
        return tracker is not None and bool(records) and records[0].offset < tracker.position

    def start_over(self, rewound: Mapping[Partition, int]) -> None:
        """Begin the assignment anew, with these partitions at these positions; what is done of the others stays so."""
        assigned = self._assigned
        self.revoke()
        for partition in rewound:
            self._completed.pop(partition, None)
        self.assign(assigned)
        for partition, position in rewound.items():
            self.locate(partition, position)

    def locate(self, partition: Partition, position: int) -> OffsetTracker:
        """The tracker of an assigned partition; a new one begins at `position`."""
        tracker = self.trackers.get(partition)
        if tracker is None:
            tracker = OffsetTracker(position, self._completed.pop(partition, None))
            self.trackers[partition] = tracker
            self._pressure[partition] = Pressure(self._limits.share(len(self._assigned)))
        return tracker

    # Work

    def start(self, now: float) -> Item | None:
        """The next record to work on; None if none may start now."""
        if self.stopped or self.keys.running >= self.limit:
            return None
        self.keys.unpark_due(now)
        blocking = [breaker for breaker in self.breakers.values() if breaker.reason is not None]
        item = self._start_blocked(blocking, now) if blocking else self.keys.start()
        if item is not None:
            item.started = now
        return item

    def _start_blocked(self, blocking: list[Breaker], now: float) -> Item | None:
        if any(breaker.wait_until() > now for breaker in blocking):
            return None
        is_probe = any(breaker.open for breaker in blocking)
        if is_probe and self._probe is not None:
            return None
        item = self.keys.start()
        if item is None:
            return None
        for breaker in blocking:
            breaker.started(now)
        if is_probe:
            self._probe = item
        return item

    def next_wake(self, now: float) -> float | None:
        """When `start` may have something that it has not now; None: only a new record or a result can change that."""
        if self.stopped or self.keys.running >= self.limit:
            return None
        times = [due] if (due := self.keys.next_due()) is not None else []
        if self.keys.ready and self._probe is None:
            gate = max(breaker.wait_until() for breaker in self.breakers.values())
            if gate > now:
                times.append(gate)
        return min(times, default=None)

    def finish(  # noqa: PLR0911 - one return for each kind of result
        self, item: Item, result: Result, answered: Set[Upstream], now: float
    ) -> Verdict | None:
        """Turn the result of a started record into what happens to it. None: it belongs to another epoch.

        Args:
            answered: the upstreams that gave the job a good answer.
        """
        if item.epoch != self.epoch:
            return None
        was_probe = self._probe is item
        if was_probe:
            self._probe = None
        for upstream in answered:
            self.breakers[upstream].answered()
        if not isinstance(result, Exception):
            return self._succeed(item, result, answered, was_probe)
        item.error = in_words(result)
        item.first_failure = item.first_failure or now
        match result:
            case Permanent():
                if result.upstream is not None:
                    self.breakers[result.upstream].refused(now)
                return self._bury(item, result.reason)
            case UpstreamDown():
                assert result.upstream is not None  # noqa: S101 - its constructor demands one
                self.breakers[result.upstream].down(result.kind, now)
                return self._refund(item, result.upstream)
            case NotYet():
                return self._wait(item, now)
            case Transient():
                return self._fail(item, result.upstream, result.retry_after, now)
            case _:
                return self._fail(item, None, None, now)

    def _succeed(self, item: Item, result: Outcome | None, answered: Set[Upstream], was_probe: bool) -> Verdict:
        self._complete(item)
        for breaker in self.breakers.values():
            if was_probe or breaker.reason is BreakerReason.SLOWED:
                breaker.unproven()
        match result:
            case Done(failed=None):
                for upstream, breaker in self.breakers.items():
                    breaker.succeeded(helped=upstream in answered)
                return Verdict(Ending.SUCCEEDED)
            case Done(failed=reason):
                return Verdict(Ending.FAILED, reason)
            case Skipped(reason=reason):
                return Verdict(Ending.SKIPPED, reason)
            case _:
                return Verdict(Ending.IGNORED)

    def _fail(self, item: Item, upstream: Upstream | None, retry_after: float | None, now: float) -> Verdict:
        if upstream is not None:
            breaker = self.breakers[upstream]
            if not item.suspect and breaker.failed(item.key, now):
                self._acquit(upstream, breaker.failing)
            if breaker.open:
                return self._refund(item, upstream)
        item.attempts += 1
        if item.attempts >= self._retry.max_attempts:
            return self._bury(item, DeadLetterReason.ATTEMPTS_EXHAUSTED)
        delay = self._retry.delay(item.attempts, retry_after)
        self.keys.park(item.key, now + delay, ParkReason.RETRY, upstream)
        return Verdict(Ending.RETRIED, ParkReason.RETRY, delay)

    def _refund(self, item: Item, upstream: Upstream) -> Verdict:
        item.suspect = True
        self.keys.retry(item.key)
        self.keys.unpark_failed(upstream)
        return Verdict(Ending.RETRIED)

    def _acquit(self, upstream: Upstream, failing: Set[Key]) -> None:
        """A breaker has opened on these keys: give the parked ones their last attempt back."""
        for item in self.keys.unpark_failed(upstream):
            if item.key in failing:
                item.attempts -= 1
                item.suspect = True

    def _wait(self, item: Item, now: float) -> Verdict:
        item.first_wait = item.first_wait or now
        if now - item.first_wait >= self._retry.wait_deadline:
            return self._bury(item, DeadLetterReason.DEADLINE_EXCEEDED)
        item.waits += 1
        delay = self._retry.delay(item.waits)
        self.keys.park(item.key, now + delay, ParkReason.NOT_YET)
        return Verdict(Ending.RETRIED, ParkReason.NOT_YET, delay)

    def _bury(self, item: Item, reason: DeadLetterReason) -> Verdict:
        item.dead = reason
        return Verdict(Ending.DEAD_LETTERED, reason, dead=True)

    def dead_letter_written(self, item: Item) -> bool:
        """The dead letter is acknowledged: the record is done. False: it belongs to another epoch."""
        if item.epoch != self.epoch:
            return False
        if self._probe is item:
            self._probe = None
        self._complete(item)
        return True

    def dead_letter_failed(self, item: Item, now: float) -> float | None:
        """The dead letter could not be written: the record waits. Seconds until the next try; None: another epoch."""
        if item.epoch != self.epoch:
            return None
        if self._probe is item:
            self._probe = None
        item.writes += 1
        delay = self._retry.delay(item.writes)
        self.keys.park(item.key, now + delay, ParkReason.DEAD_LETTER_UNAVAILABLE)
        return delay

    def _complete(self, item: Item) -> None:
        self.keys.finish(item.key)
        self.trackers[item.partition].done(item.record.offset)
        self._pressure[item.partition].remove(item.record.size)

    # Offsets and pauses

    def commits(self) -> dict[Partition, int]:
        """What may be committed and is not."""
        return {partition: tracker.committable for partition, tracker in self.trackers.items() if tracker.dirty}

    def committed(self, epoch: int, offsets: Mapping[Partition, int]) -> None:
        """The broker has acknowledged a commit that was read from `commits` in this epoch."""
        if epoch == self.epoch:
            for partition, offset in offsets.items():
                tracker = self.trackers[partition]
                tracker.committed = max(tracker.committed, offset)

    def paused(self) -> set[Partition]:
        """The partitions that must not be read now."""
        return {p for p, pressure in self._pressure.items() if pressure.update(self.trackers[p].span)}

    def oldest(self) -> float:
        """Timestamp (seconds) of the oldest record that is not done; 0 if none."""
        return min((item.record.timestamp for item in self.keys.items()), default=0) / 1000

    def buffered(self) -> int:
        """How many delivered records are not done and not in flight."""
        return sum(pressure.records for pressure in list(self._pressure.values())) - self.keys.running
