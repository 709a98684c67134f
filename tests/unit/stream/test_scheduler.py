"""A lane's decisions, one by one; all together they are in the state machine."""

import pytest

from consumer.errors import DeadLetterReason, DownKind, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Degraded, Done, Skipped, SkipReason
from consumer.stream.backpressure import FULL_SHARES, BackpressureLimits
from consumer.stream.breaker import FIRST_PROBE, REFUSALS_TO_THROTTLE
from consumer.stream.dead_letter_writer import describe_error
from consumer.stream.hooks import AttemptOutcome, BreakerReason, ParkReason
from consumer.stream.records import Partition, WorkItem
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import Decision, LaneScheduler, Result
from tests.unit.stream.samples import P0, P1, record

POISON = Transient("500", upstream=Upstream.HINDSIGHT)
DOWN = UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE)
REFUSED = Permanent("422", reason=DeadLetterReason.REJECTED, upstream=Upstream.HINDSIGHT)
NOT_YET = NotYet("still retaining", upstream=Upstream.HINDSIGHT)
GOOD = frozenset({Upstream.HINDSIGHT})
NONE = frozenset[Upstream]()
LATER = 1_000_000.0


def lane(*keys: bytes, limit: int = 10, retry: RetryPolicy | None = None) -> LaneScheduler:
    """A scheduler with one partition, in which a record of each key was delivered."""
    scheduler = LaneScheduler(limit, retry or RetryPolicy(max_attempts=3), BackpressureLimits())
    scheduler.assign([P0])
    scheduler.deliver(P0, [record(offset, key) for offset, key in enumerate(keys)], len(keys))
    return scheduler


def begin(scheduler: LaneScheduler, now: float = 0.0) -> WorkItem:
    item = scheduler.start(now)
    assert item is not None
    return item


def end(
    scheduler: LaneScheduler, item: WorkItem, result: Result, answered: frozenset[Upstream] = NONE, now: float = 0.0
) -> Decision:
    decision = scheduler.finish(item, result, answered, now)
    assert decision is not None
    return decision


def opened(scheduler: LaneScheduler, upstream: Upstream = Upstream.HINDSIGHT) -> BreakerReason | None:
    return scheduler.breakers[upstream].reason


# Keys


def test_records_without_a_key_run_one_after_another_if_their_fallback_key_is_equal() -> None:
    scheduler = LaneScheduler(10, RetryPolicy(), BackpressureLimits(), lambda record: record.value)
    scheduler.assign([P0])
    records = [
        record(0, None, b"a"),
        record(1, None, b"b"),
        record(2, None, b"a"),
        record(3, b"b"),
        record(4, None, None),
    ]
    scheduler.deliver(P0, records, 5)
    first = begin(scheduler)
    assert [first.record.offset, begin(scheduler).record.offset, begin(scheduler).record.offset] == [0, 1, 4]
    assert scheduler.start(0.0) is None
    end(scheduler, first, Done())
    assert begin(scheduler).record.offset == 2


# Results


@pytest.mark.parametrize(
    ("result", "decision"),
    [
        (Done(), Decision(AttemptOutcome.SUCCEEDED)),
        (Degraded(Upstream.HINDSIGHT), Decision(AttemptOutcome.FAILED, Upstream.HINDSIGHT)),
        (Skipped(SkipReason.NO_ISSUE), Decision(AttemptOutcome.SKIPPED, SkipReason.NO_ISSUE)),
        (None, Decision(AttemptOutcome.IGNORED)),
    ],
)
def test_a_handler_result_completes_the_record(result: Result, decision: Decision) -> None:
    scheduler = lane(b"a")
    assert end(scheduler, begin(scheduler), result) == decision
    assert scheduler.committable() == {P0: 1}
    assert scheduler.buffered() == 0


@pytest.mark.parametrize(
    "error",
    [REFUSED, Permanent("undecodable", reason=DeadLetterReason.UNDECODABLE)],
)
def test_a_permanent_failure_is_done_once_its_dead_letter_is_written(error: Permanent) -> None:
    scheduler = lane(b"a")
    item = begin(scheduler)
    assert end(scheduler, item, error) == Decision(AttemptOutcome.DEAD_LETTERED, error.reason, dead_letter=True)
    assert scheduler.committable() == {}
    assert scheduler.dead_letter_written(item)
    assert scheduler.committable() == {P0: 1}


def test_a_transient_failure_parks_the_key_and_frees_the_slot() -> None:
    scheduler = lane(b"a", b"b", limit=1)
    first = begin(scheduler)
    decision = end(scheduler, first, POISON)
    assert (decision.outcome, decision.reason, decision.dead_letter) == (
        AttemptOutcome.RETRIED,
        ParkReason.RETRY,
        False,
    )
    assert first.attempts == 1
    assert scheduler.committable() == {}
    assert begin(scheduler).record.key == b"b"


def test_retry_after_is_honoured() -> None:
    scheduler = lane(b"a")
    decision = end(scheduler, begin(scheduler), Transient("429", upstream=Upstream.HINDSIGHT, retry_after=120.0))
    assert decision.delay == 120.0
    assert scheduler.start(119.0) is None
    assert scheduler.next_wake(119.0) == 120.0
    assert scheduler.start(120.0) is not None


@pytest.mark.parametrize("error", [POISON, KeyError("a bug"), TimeoutError()])
def test_a_record_becomes_a_dead_letter_after_max_attempts(error: Exception) -> None:
    scheduler = lane(b"a")
    item = begin(scheduler, LATER)
    assert not end(scheduler, item, error, now=LATER).dead_letter
    assert begin(scheduler, LATER * 2) is item
    assert not end(scheduler, item, error, now=LATER * 2).dead_letter
    decision = end(scheduler, begin(scheduler, LATER * 3), error, now=LATER * 3)
    assert decision == Decision(AttemptOutcome.DEAD_LETTERED, DeadLetterReason.ATTEMPTS_EXHAUSTED, dead_letter=True)
    assert item.first_failure == LATER


def test_foreign_errors_open_no_breaker() -> None:
    scheduler = lane(b"a", b"b", b"c", b"d")
    for _ in range(4):
        end(scheduler, begin(scheduler), KeyError("a bug"))
    assert all(breaker.reason is None for breaker in scheduler.breakers.values())


def wait_for(scheduler: LaneScheduler, seconds: float, now: float) -> tuple[Decision, float]:
    """Answer `NotYet` at each due time for this long; the last decision, and the time."""
    until, decision = now + seconds, None
    while decision is None or (now < until and not decision.dead_letter):
        item = begin(scheduler, now)
        decision = end(scheduler, item, NOT_YET, GOOD, now=now)
        now += decision.delay
    return decision, now


def test_not_yet_spends_no_attempt_and_ends_once_the_record_is_old_and_was_asked_about_for_an_hour() -> None:
    scheduler = lane(b"a", retry=RetryPolicy(max_attempts=1, wait_deadline=86_400.0))
    item, published = begin(scheduler, 1_000.0), 1_000.0
    assert end(scheduler, item, NOT_YET, now=published).reason is ParkReason.NOT_YET
    assert (item.attempts, item.not_yet_count) == (0, 1)
    decision, now = wait_for(scheduler, 86_000.0, published + 400.0)
    assert not decision.dead_letter, "it was asked about for an hour, but is not old enough"
    decision, now = wait_for(scheduler, 2_000.0, now)
    assert decision == Decision(AttemptOutcome.DEAD_LETTERED, DeadLetterReason.DEADLINE_EXCEEDED, dead_letter=True)
    assert published + 86_400.0 <= now <= published + 87_000.0


def test_an_outage_of_a_day_does_not_count_towards_the_hour() -> None:
    scheduler = lane(b"a", retry=RetryPolicy(wait_deadline=86_400.0))
    item = begin(scheduler, 1_000.0)
    decision = end(scheduler, item, NOT_YET, now=1_000.0)
    assert begin(scheduler, 1_000.0 + decision.delay) is item
    end(scheduler, item, DOWN, now=1_100.0)
    decision, now = wait_for(scheduler, 3_000.0, 90_000.0)
    assert not decision.dead_letter
    decision, _ = wait_for(scheduler, 2_000.0, now)
    assert decision.dead_letter


@pytest.mark.parametrize(
    ("age", "waited", "overdue"),
    [(86_400.0, 3_600.0, True), (86_399.0, 3_600.0, False), (86_400.0, 3_599.0, False)],
)
def test_a_record_is_overdue_when_it_is_old_and_has_waited(age: float, waited: float, overdue: bool) -> None:
    assert RetryPolicy().is_overdue(age, waited) is overdue
    assert RetryPolicy(wait_deadline=60.0).is_overdue(60.0, 60.0), "a shorter deadline needs no whole hour"


def test_attempts_and_waiting_survive_a_rebalance_of_partitions_that_stay() -> None:
    scheduler = lane(b"a", b"b", b"c", retry=RetryPolicy(max_attempts=3))
    failing, waiting, fresh = (begin(scheduler, 50.0) for _ in range(3))
    end(scheduler, failing, KeyError("a bug"), now=50.0)
    end(scheduler, waiting, NOT_YET, now=50.0)
    for _ in range(2):
        scheduler.assign([P0, P1])
    scheduler.deliver(P0, [record(0, b"a"), record(1, b"b"), record(2, b"c")], 3)
    items = [begin(scheduler, LATER) for _ in range(3)]
    assert [item.attempts for item in items] == [1, 0, 0]
    assert [item.first_failure for item in items] == [50.0, 50.0, 0.0]
    assert (items[1].not_yet_count, items[1].waited) == (1, waiting.waited)
    assert not end(scheduler, items[0], KeyError("a bug"), now=LATER).dead_letter
    assert fresh.attempts == 0


@pytest.mark.parametrize("truncated", [True, False], ids=["its log is truncated", "it leaves"])
def test_attempts_are_forgotten_with_their_partition(truncated: bool) -> None:
    scheduler = lane(b"a")
    end(scheduler, begin(scheduler, 50.0), KeyError("a bug"), now=50.0)
    if truncated:
        scheduler.reset({P0: 0})
    else:
        scheduler.assign([P1])
    scheduler.assign([P0])
    scheduler.deliver(P0, [record(0, b"a")], 1)
    assert begin(scheduler, LATER).attempts == 0


def test_not_yet_opens_no_breaker() -> None:
    scheduler = lane(b"a", b"b", b"c", b"d")
    for _ in range(4):
        end(scheduler, begin(scheduler), NOT_YET)
    assert opened(scheduler) is None


# Breakers


def test_upstream_down_refunds_the_attempt_and_lets_one_probe_through_at_a_time() -> None:
    scheduler = lane(b"a", b"b", b"c")
    first = begin(scheduler)
    assert end(scheduler, first, DOWN) == Decision(AttemptOutcome.RETRIED)
    assert first.attempts == 0
    assert scheduler.start(FIRST_PROBE / 2) is None
    assert scheduler.next_wake(FIRST_PROBE / 2) == FIRST_PROBE
    probe = begin(scheduler, FIRST_PROBE)
    assert probe.record.key == b"b"
    assert scheduler.start(LATER) is None
    assert scheduler.next_wake(LATER) is None, "only the probe's result can change that"
    end(scheduler, probe, Done(), GOOD, now=LATER)
    assert {begin(scheduler, LATER).record.key, begin(scheduler, LATER).record.key} == {b"c", b"a"}


def test_failures_in_flight_when_a_breaker_opens_are_refunded() -> None:
    scheduler = lane(b"a", b"b", b"c", b"d")
    items = [begin(scheduler) for _ in range(4)]
    decisions = [end(scheduler, item, POISON) for item in items]
    assert [decision.reason for decision in decisions] == [ParkReason.RETRY, ParkReason.RETRY, None, None]
    assert [item.attempts for item in items] == [0, 0, 0, 0], "the two parked ones are acquitted"
    assert opened(scheduler) is BreakerReason.FAILING
    assert scheduler.keys.parked()[ParkReason.RETRY] == 0


def test_a_poison_record_is_charged_once_another_key_has_succeeded() -> None:
    scheduler = lane(b"a", b"b", b"c", b"good", retry=RetryPolicy(max_attempts=2))
    poison = [begin(scheduler) for _ in range(3)]
    good = begin(scheduler)
    for item in poison:
        end(scheduler, item, POISON)
    assert opened(scheduler) is BreakerReason.FAILING
    end(scheduler, good, Done(), GOOD)
    for attempt in (1, 2):
        now = LATER * attempt
        assert {begin(scheduler, now) for _ in poison} == set(poison)
        for item in poison:
            assert end(scheduler, item, POISON, now=now).dead_letter is (attempt == 2)
            assert item.attempts == attempt
        assert opened(scheduler) is None
    assert all(scheduler.dead_letter_written(item) for item in poison)
    assert scheduler.committable() == {P0: 4}


def test_a_refunded_record_that_fails_again_does_not_count_towards_opening_the_breaker() -> None:
    scheduler = lane(b"a", b"b", b"c", b"d", b"e", b"good")
    items = [begin(scheduler) for _ in range(6)]
    for item in items[:5]:
        end(scheduler, item, POISON)
    assert all(item.exempt_from_breaker for item in items[:5])
    end(scheduler, items[5], Done(), GOOD)
    for _ in range(5):
        end(scheduler, begin(scheduler, LATER), POISON, now=LATER)
    assert opened(scheduler) is None
    assert [item.attempts for item in items[:5]] == [1, 1, 1, 1, 1]


def test_a_dead_letter_that_cannot_be_written_is_retried_after_growing_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    scheduler = lane(b"a", retry=RetryPolicy(first=4.0, longest=300.0))
    item, now = begin(scheduler), 0.0
    end(scheduler, item, REFUSED)
    for delay in (4.0, 8.0, 16.0):
        assert scheduler.dead_letter_failed(item, now) == delay
        assert scheduler.start(now + delay - 0.1) is None
        now += delay
        assert scheduler.next_wake(now - 0.1) == now
        assert begin(scheduler, now) is item


def test_an_opening_breaker_refunds_one_attempt_of_each_key_that_opened_it() -> None:
    scheduler = lane(b"a", b"b")
    earlier, twice = begin(scheduler), begin(scheduler)
    end(scheduler, earlier, Transient("500", upstream=Upstream.HINDSIGHT, retry_after=300.0))
    end(scheduler, twice, POISON, GOOD)  # an answer before the failure: what failed earlier no longer counts
    assert begin(scheduler, 299.0) is twice
    end(scheduler, twice, POISON, now=299.0)
    scheduler.deliver(P0, [record(2, b"c"), record(3, b"d")], 4)
    for _ in range(2):
        end(scheduler, begin(scheduler, 299.0), POISON, now=299.0)
    assert opened(scheduler) is BreakerReason.FAILING
    assert (earlier.attempts, twice.attempts) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(DownKind.REFUSED, DeadLetterReason.FORBIDDEN), (DownKind.UNREACHABLE, DeadLetterReason.ATTEMPTS_EXHAUSTED)],
)
def test_a_record_that_always_draws_upstream_down_while_others_succeed_becomes_a_dead_letter(
    kind: DownKind, reason: DeadLetterReason
) -> None:
    scheduler = lane(b"forbidden", b"1", b"2", b"3", b"4", retry=RetryPolicy(max_attempts=3))
    down = UpstreamDown("403", upstream=Upstream.HINDSIGHT, kind=kind)
    item = begin(scheduler)
    assert end(scheduler, item, down) == Decision(AttemptOutcome.RETRIED)
    assert (item.attempts, opened(scheduler)) == (0, BreakerReason(kind.value)), "it may be an outage"
    now, decision = 0.0, None
    for attempt in (1, 2, 3):
        now += LATER
        other = begin(scheduler, now)
        end(scheduler, other, Done(), GOOD, now=now)
        while (started := begin(scheduler, now)) is not item:
            end(scheduler, started, Done(), GOOD, now=now)
        decision = end(scheduler, item, down, now=now)
        assert item.attempts == attempt
        assert opened(scheduler) is None, "it holds up no other record"
        scheduler.deliver(P0, [record(10 + attempt, b"%d" % attempt)], 11 + attempt)
    assert decision == Decision(AttemptOutcome.DEAD_LETTERED, reason, dead_letter=True)


@pytest.mark.parametrize("answered", [NONE, GOOD], ids=["no answer", "it answers other requests of the same record"])
def test_upstream_down_without_a_success_of_others_is_never_charged(answered: frozenset[Upstream]) -> None:
    scheduler = lane(b"a", b"b", retry=RetryPolicy(max_attempts=1))
    refused = UpstreamDown("402", upstream=Upstream.HINDSIGHT, kind=DownKind.REFUSED)
    for n in range(1, 20):
        item = begin(scheduler, LATER * n)
        assert end(scheduler, item, refused, answered, now=LATER * n) == Decision(AttemptOutcome.RETRIED)
        assert item.attempts == 0
        assert opened(scheduler) is BreakerReason.REFUSED


def test_an_outage_after_a_success_charges_a_record_at_most_once() -> None:
    scheduler = lane(b"a", b"b", retry=RetryPolicy(max_attempts=3))
    refused = UpstreamDown("402", upstream=Upstream.HINDSIGHT, kind=DownKind.REFUSED)
    item = begin(scheduler)
    end(scheduler, item, refused)
    end(scheduler, begin(scheduler, LATER), Done(), GOOD, now=LATER)
    for n in range(2, 20):
        assert begin(scheduler, LATER * n) is item
        end(scheduler, item, refused, GOOD, now=LATER * n)
    assert item.attempts == 1


def test_a_skipped_probe_keeps_the_breaker_open_and_lets_the_next_start_at_once() -> None:
    scheduler = lane(b"a", b"b", b"c")
    end(scheduler, begin(scheduler), DOWN)
    probe = begin(scheduler, 1.0)
    end(scheduler, probe, Skipped(SkipReason.NO_ISSUE), now=1.0)
    assert opened(scheduler) is BreakerReason.UNREACHABLE
    assert begin(scheduler, 1.0).record.key == b"c"


def test_a_refusal_closes_the_breaker() -> None:
    scheduler = lane(b"a", b"b")
    end(scheduler, begin(scheduler), DOWN)
    assert end(scheduler, begin(scheduler, 1.0), REFUSED, now=1.0).dead_letter
    assert opened(scheduler) is None


def test_two_upstreams_down_are_probed_together() -> None:
    scheduler = lane(b"a", b"b", b"c")
    items = [begin(scheduler) for _ in range(2)]
    end(scheduler, items[0], DOWN)
    end(scheduler, items[1], UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED))
    probe = begin(scheduler, 10.0)
    assert scheduler.start(10.0) is None
    end(scheduler, probe, DOWN, frozenset({Upstream.PAPERCLIP}), now=10.0)
    assert opened(scheduler, Upstream.PAPERCLIP) is None
    assert opened(scheduler, Upstream.HINDSIGHT) is BreakerReason.UNREACHABLE


def test_a_parked_dead_letter_may_be_the_probe() -> None:
    scheduler = lane(b"a", b"b")
    dead, down = begin(scheduler), begin(scheduler)
    end(scheduler, dead, Permanent("no", reason=DeadLetterReason.INVALID))
    assert scheduler.dead_letter_failed(dead, 0.0) is not None
    end(scheduler, down, DOWN)
    for written in (False, True):
        at = LATER * (2 if written else 1)
        while (probe := begin(scheduler, at)) is not dead:
            end(scheduler, probe, DOWN, now=at)
            at += 10.0
        assert scheduler.start(at) is None
        if written:
            assert scheduler.dead_letter_written(dead)
        else:
            assert scheduler.dead_letter_failed(dead, at) is not None
            assert scheduler.keys.parked()[ParkReason.DEAD_LETTER_UNAVAILABLE] == 1
            assert scheduler.committable() == {}
        assert begin(scheduler, at + 10.0) is down
        end(scheduler, down, DOWN, now=at + 10.0)


def test_a_run_of_refusals_throttles_the_lane_until_a_success() -> None:
    scheduler = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_THROTTLE + 3)), limit=100)
    for _ in range(REFUSALS_TO_THROTTLE):
        item = begin(scheduler)
        end(scheduler, item, REFUSED)
        scheduler.dead_letter_written(item)
    assert opened(scheduler) is BreakerReason.THROTTLED
    assert scheduler.start(1.9) is None
    assert scheduler.next_wake(1.9) == 2.0
    slow = begin(scheduler, 2.0)
    assert scheduler.start(2.0) is None
    assert scheduler.next_wake(2.0) == 4.0
    end(scheduler, slow, Done(), GOOD, now=2.5)
    assert opened(scheduler) is None
    assert [begin(scheduler, 2.5), begin(scheduler, 2.5)]


def test_a_skip_does_not_delay_the_next_start_in_a_throttled_lane() -> None:
    scheduler = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_THROTTLE + 3)), limit=100)
    for _ in range(REFUSALS_TO_THROTTLE):
        item = begin(scheduler)
        end(scheduler, item, REFUSED)
        scheduler.dead_letter_written(item)
    end(scheduler, begin(scheduler, 2.0), Skipped(SkipReason.NO_AGENT), now=2.0)
    assert opened(scheduler) is BreakerReason.THROTTLED
    begin(scheduler, 2.0)
    assert scheduler.start(3.9) is None


def test_successes_without_an_upstream_do_not_reset_its_count_of_refusals() -> None:
    scheduler = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_THROTTLE + 5)), limit=100)
    forbidden = Permanent("403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP)
    for _ in range(REFUSALS_TO_THROTTLE):
        item = begin(scheduler)
        end(scheduler, item, forbidden)
        scheduler.dead_letter_written(item)
    end(scheduler, begin(scheduler, 2.0), Done(), GOOD, now=2.0)
    assert opened(scheduler, Upstream.PAPERCLIP) is None
    end(scheduler, begin(scheduler, 2.0), Done(), GOOD, now=2.0)
    end(scheduler, begin(scheduler, 2.0), forbidden, now=2.0)
    assert opened(scheduler, Upstream.PAPERCLIP) is BreakerReason.THROTTLED, "the run of refusals has not ended"
    assert scheduler.start(3.9) is None


def test_an_open_breaker_without_ready_records_starts_no_probe() -> None:
    scheduler = lane(b"a", retry=RetryPolicy(first=1_000.0, longest=1_000.0))
    end(scheduler, begin(scheduler), Transient("503", retry_after=1_000.0))
    scheduler.breakers[Upstream.HINDSIGHT].record_down(DownKind.UNREACHABLE, 0.0)
    assert scheduler.start(500.0) is None
    assert scheduler.start(1_000.0) is not None


def test_undecodable_records_do_not_throttle_the_lane() -> None:
    scheduler = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_THROTTLE + 1)), limit=100)
    for _ in range(REFUSALS_TO_THROTTLE + 1):
        end(scheduler, begin(scheduler), Permanent("no JSON", reason=DeadLetterReason.UNDECODABLE))
    assert all(breaker.reason is None for breaker in scheduler.breakers.values())


# Starting


def test_no_more_than_the_limit_is_in_flight() -> None:
    scheduler = lane(b"a", b"b", b"c", limit=2)
    first = begin(scheduler)
    begin(scheduler)
    assert scheduler.start(0.0) is None
    assert scheduler.next_wake(0.0) is None
    end(scheduler, first, Done())
    assert scheduler.start(0.0) is not None


def test_a_stopped_scheduler_starts_nothing_and_lets_running_records_finish() -> None:
    scheduler = lane(b"a", b"b")
    item = begin(scheduler)
    scheduler.stop()
    assert scheduler.start(LATER) is None
    assert scheduler.next_wake(LATER) is None
    end(scheduler, item, Done())
    assert scheduler.committable() == {P0: 1}


def test_an_idle_lane_and_a_ready_lane_need_no_timer() -> None:
    assert lane().next_wake(0.0) is None
    assert lane(b"a").next_wake(0.0) is None


# Assignments


def test_results_of_another_epoch_change_nothing() -> None:
    scheduler = lane(b"a")
    item = begin(scheduler)
    scheduler.assign([P0])
    assert scheduler.finish(item, Done(), GOOD, 0.0) is None
    assert not scheduler.dead_letter_written(item)
    assert scheduler.dead_letter_failed(item, 0.0) is None
    assert scheduler.committable() == {}
    scheduler.mark_committed(scheduler.epoch - 1, {P0: 99})
    assert scheduler.trackers == {}


def test_records_of_a_partition_that_is_not_ours_are_dropped() -> None:
    scheduler = lane()
    scheduler.deliver(P1, [record(partition=1)], 1)
    scheduler.deliver(P0, [], 7)
    assert scheduler.trackers == {}
    assert scheduler.start(0.0) is None


def test_completed_offsets_of_a_partition_that_left_are_forgotten() -> None:
    scheduler = lane(b"a", b"b")
    end(scheduler, begin(scheduler), Done())
    scheduler.assign([P1])
    scheduler.assign([P0])
    scheduler.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    assert begin(scheduler).record.offset == 0


def test_a_probe_cancelled_by_a_rebalance_does_not_block_the_next() -> None:
    scheduler = lane(b"a", b"b")
    end(scheduler, begin(scheduler), DOWN)
    begin(scheduler, 1.0)
    scheduler.assign([P0])
    scheduler.deliver(P0, [record(0, b"a")], 1)
    assert scheduler.start(LATER) is not None


def test_a_late_acknowledgement_does_not_undo_a_later_commit() -> None:
    scheduler = lane(b"a", b"b")
    end(scheduler, begin(scheduler), Done())
    earlier = scheduler.committable()
    end(scheduler, begin(scheduler), Done())
    scheduler.mark_committed(scheduler.epoch, scheduler.committable())
    scheduler.mark_committed(scheduler.epoch, earlier)
    assert scheduler.committable() == {}


def test_a_full_partition_is_paused() -> None:
    scheduler = LaneScheduler(10, RetryPolicy(), BackpressureLimits(records=2))
    scheduler.assign([P0, P1])
    scheduler.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    scheduler.deliver(P1, [record(0, b"a", partition=1)], 1)
    assert scheduler.paused() == {P0}
    assert scheduler.buffered() == 3


def test_records_that_wait_by_design_do_not_pause_their_partition() -> None:
    scheduler = LaneScheduler(10, RetryPolicy(), BackpressureLimits(records=3))
    scheduler.assign([P0])
    scheduler.deliver(P0, [record(0, b"a"), record(1, b"b"), record(2, b"c")], 3)
    assert scheduler.paused() == {P0}
    for _ in range(3):
        end(scheduler, begin(scheduler), NOT_YET)
    assert scheduler.paused() == set()
    scheduler.deliver(P0, [record(3, b"d"), record(4, b"e")], 5)
    assert scheduler.paused() == set()
    again = [begin(scheduler, LATER) for _ in range(5)]
    assert scheduler.paused() == {P0}, "while they are asked about they are work again"
    for item in again:
        end(scheduler, item, Done(), now=LATER)
    assert scheduler.paused() == set()
    assert scheduler.buffered() == 0


def test_a_partition_whose_first_record_waits_by_design_tells_how_late_the_others_are() -> None:
    scheduler = lane(b"a", b"a", b"b", b"c")
    assert scheduler.waiting(1_500.0) == {}
    end(scheduler, begin(scheduler), NOT_YET)
    assert scheduler.waiting(1_500.0) == {P0: 500.0}, "b and c are not done"
    for _ in range(2):
        end(scheduler, begin(scheduler), Done())
    assert scheduler.waiting(1_500.0) == {P0: 0.0}, "a second record of a waiting key waits, too"
    item = begin(scheduler, LATER)
    assert scheduler.waiting(LATER) == {}, "nothing waits while it is asked about"
    end(scheduler, item, NOT_YET, now=LATER)
    assert scheduler.waiting(LATER) == {P0: 0.0}


def test_a_partition_whose_first_record_is_not_done_does_not_wait_by_design() -> None:
    scheduler = lane(b"a", b"b")
    begin(scheduler)
    end(scheduler, begin(scheduler), NOT_YET)
    assert scheduler.waiting(1_500.0) == {}


def test_with_more_partitions_each_is_paused_earlier() -> None:
    partitions = [Partition("comments", number) for number in range(2 * FULL_SHARES)]
    scheduler = LaneScheduler(10, RetryPolicy(), BackpressureLimits(records=4))
    scheduler.assign(partitions)
    scheduler.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    assert scheduler.paused() == {P0}


def test_the_oldest_record_is_the_oldest_unfinished_one() -> None:
    scheduler = lane(b"a")
    assert scheduler.oldest() == 1_000.0
    end(scheduler, begin(scheduler), Done())
    assert scheduler.oldest() == 0.0
    assert scheduler.assigned == {Partition("comments", 0)}


# Words


def test_an_error_is_described_by_its_message_or_if_foreign_by_type_and_place() -> None:
    assert describe_error(POISON) == "500"
    assert describe_error(Transient("")) == "Transient"
    assert describe_error(ValueError("a secret")) == "ValueError"
    facts: dict[str, str] = {}
    with pytest.raises(KeyError) as caught:
        facts["a secret"]
    words = describe_error(caught.value)
    assert words.startswith("KeyError in test_an_error_is_described")
    assert "test_scheduler.py:" in words
    assert "secret" not in words


def test_an_open_breaker_probes_with_the_first_record_after_a_rebalance() -> None:
    scheduler = lane(b"a")
    item = begin(scheduler)
    end(scheduler, item, DOWN)
    scheduler.assign([P0])  # a rebalance took the record away; the breaker stays open
    assert scheduler.start(LATER) is None
    scheduler.deliver(P0, [record(0, b"a")], 1)
    assert begin(scheduler, LATER).record.offset == 0
