"""The decisions of a lane, without I/O: what to start, what a result means, what to commit, what to pause.

`Lane` polls, runs jobs, writes dead letters and commits; it consults the scheduler at every step. All times are seconds
on one clock and passed in.
"""

from collections.abc import Set
from dataclasses import dataclass

from consumer.errors import DeadLetterReason, DownKind, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Degraded, Done, HandlerResult, Skipped, SkipReason
from consumer.stream.assignment import Assignment
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.breaker import Breaker
from consumer.stream.dead_letter_writer import describe_error
from consumer.stream.hooks import AttemptOutcome, BreakerReason, ParkReason
from consumer.stream.records import FallbackKey, Key, WorkItem
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


class LaneScheduler(Assignment):
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
        super().__init__(limits, fallback_key)
        self.limit = limit
        self.breakers = {upstream: Breaker(upstream) for upstream in Upstream}
        self._retry = retry
        self._probe: WorkItem | None = None

    def revoke(self) -> None:
        super().revoke()
        self._probe = None

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
