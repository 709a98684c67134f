"""A lane's decisions, one by one; all together they are in the state machine."""

import pytest

from consumer.errors import DeadLetterReason, DownKind, NotYet, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Done, FailReason, Skipped, SkipReason
from consumer.stream.breaker import FIRST_PROBE, REFUSALS_TO_SLOW
from consumer.stream.core import LaneCore, Result, Verdict, in_words
from consumer.stream.items import Item
from consumer.stream.pressure import FULL_SHARES, Limits
from consumer.stream.records import Partition
from consumer.stream.retry import RetryPolicy
from consumer.stream.signals import BreakerReason, Ending, ParkReason
from tests.unit.stream.samples import P0, P1, record

POISON = Transient("500", upstream=Upstream.HINDSIGHT)
DOWN = UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE)
REFUSED = Permanent("422", reason=DeadLetterReason.REJECTED, upstream=Upstream.HINDSIGHT)
NOT_YET = NotYet("still retaining", upstream=Upstream.HINDSIGHT)
GOOD = frozenset({Upstream.HINDSIGHT})
NONE = frozenset[Upstream]()
LATER = 1_000_000.0


def lane(*keys: bytes, limit: int = 10, retry: RetryPolicy | None = None) -> LaneCore:
    """A core with one partition, in which a record of each key was delivered."""
    core = LaneCore(limit, retry or RetryPolicy(max_attempts=3), Limits())
    core.assign([P0])
    core.deliver(P0, [record(offset, key) for offset, key in enumerate(keys)], len(keys))
    return core


def begin(core: LaneCore, now: float = 0.0) -> Item:
    item = core.start(now)
    assert item is not None
    return item


def end(core: LaneCore, item: Item, result: Result, answered: frozenset[Upstream] = NONE, now: float = 0.0) -> Verdict:
    verdict = core.finish(item, result, answered, now)
    assert verdict is not None
    return verdict


def opened(core: LaneCore, upstream: Upstream = Upstream.HINDSIGHT) -> BreakerReason | None:
    return core.breakers[upstream].reason


# Results


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Done(), Verdict(Ending.SUCCEEDED)),
        (Done(FailReason.HINDSIGHT), Verdict(Ending.FAILED, FailReason.HINDSIGHT)),
        (Skipped(SkipReason.NO_ISSUE), Verdict(Ending.SKIPPED, SkipReason.NO_ISSUE)),
        (None, Verdict(Ending.IGNORED)),
    ],
)
def test_an_outcome_completes_the_record(result: Result, verdict: Verdict) -> None:
    core = lane(b"a")
    assert end(core, begin(core), result) == verdict
    assert core.commits() == {P0: 1}
    assert core.buffered() == 0


@pytest.mark.parametrize(
    "error",
    [REFUSED, Permanent("undecodable", reason=DeadLetterReason.UNDECODABLE)],
)
def test_what_fails_for_ever_is_done_when_its_dead_letter_is_written(error: Permanent) -> None:
    core = lane(b"a")
    item = begin(core)
    assert end(core, item, error) == Verdict(Ending.DEAD_LETTERED, error.reason, dead=True)
    assert core.commits() == {}
    assert core.dead_letter_written(item)
    assert core.commits() == {P0: 1}


def test_a_transient_failure_parks_the_key_and_frees_the_slot() -> None:
    core = lane(b"a", b"b", limit=1)
    first = begin(core)
    verdict = end(core, first, POISON)
    assert (verdict.ending, verdict.reason, verdict.dead) == (Ending.RETRIED, ParkReason.RETRY, False)
    assert first.attempts == 1
    assert core.commits() == {}
    assert begin(core).record.key == b"b"


def test_retry_after_is_honoured() -> None:
    core = lane(b"a")
    verdict = end(core, begin(core), Transient("429", upstream=Upstream.HINDSIGHT, retry_after=120.0))
    assert verdict.delay == 120.0
    assert core.start(119.0) is None
    assert core.next_wake(119.0) == 120.0
    assert core.start(120.0) is not None


@pytest.mark.parametrize("error", [POISON, KeyError("a bug"), TimeoutError()])
def test_attempts_end(error: Exception) -> None:
    core = lane(b"a")
    item = begin(core, LATER)
    assert not end(core, item, error, now=LATER).dead
    assert begin(core, LATER * 2) is item
    assert not end(core, item, error, now=LATER * 2).dead
    verdict = end(core, begin(core, LATER * 3), error, now=LATER * 3)
    assert verdict == Verdict(Ending.DEAD_LETTERED, DeadLetterReason.ATTEMPTS_EXHAUSTED, dead=True)
    assert item.first_failure == LATER


def test_an_error_that_is_not_ours_concerns_no_breaker() -> None:
    core = lane(b"a", b"b", b"c", b"d")
    for _ in range(4):
        end(core, begin(core), KeyError("a bug"))
    assert all(breaker.reason is None for breaker in core.breakers.values())


def test_a_wait_spends_no_attempt_and_ends_at_its_deadline() -> None:
    core = lane(b"a", retry=RetryPolicy(max_attempts=1, wait_deadline=100.0))
    item = begin(core, 1_000.0)
    assert end(core, item, NOT_YET, now=1_000.0).reason is ParkReason.NOT_YET
    assert (item.attempts, item.waits) == (0, 1)
    assert begin(core, 1_090.0) is item
    assert not end(core, item, NOT_YET, now=1_090.0).dead
    assert begin(core, 2_000.0) is item
    verdict = end(core, item, NOT_YET, now=2_000.0)
    assert verdict == Verdict(Ending.DEAD_LETTERED, DeadLetterReason.DEADLINE_EXCEEDED, dead=True)


def test_the_time_that_an_outage_took_is_not_the_waiting_of_the_record() -> None:
    core = lane(b"a", retry=RetryPolicy(wait_deadline=100.0))
    item = begin(core, 1_000.0)
    end(core, item, DOWN, now=1_000.0)
    assert begin(core, 90_000.0) is item
    assert not end(core, item, NOT_YET, GOOD, now=90_000.0).dead


def test_a_wait_counts_for_no_breaker() -> None:
    core = lane(b"a", b"b", b"c", b"d")
    for _ in range(4):
        end(core, begin(core), NOT_YET)
    assert opened(core) is None


# Breakers


def test_an_upstream_that_is_down_gives_the_attempt_back_and_lets_one_probe_through_at_a_time() -> None:
    core = lane(b"a", b"b", b"c")
    first = begin(core)
    assert end(core, first, DOWN) == Verdict(Ending.RETRIED)
    assert first.attempts == 0
    assert core.start(FIRST_PROBE / 2) is None
    assert core.next_wake(FIRST_PROBE / 2) == FIRST_PROBE
    probe = begin(core, FIRST_PROBE)
    assert probe.record.key == b"b"
    assert core.start(LATER) is None
    assert core.next_wake(LATER) is None, "only the probe's result can change that"
    end(core, probe, Done(), GOOD, now=LATER)
    assert {begin(core, LATER).record.key, begin(core, LATER).record.key} == {b"c", b"a"}


def test_what_was_in_flight_when_it_opened_is_given_back_too() -> None:
    core = lane(b"a", b"b", b"c", b"d")
    items = [begin(core) for _ in range(4)]
    verdicts = [end(core, item, POISON) for item in items]
    assert [verdict.reason for verdict in verdicts] == [ParkReason.RETRY, ParkReason.RETRY, None, None]
    assert [item.attempts for item in items] == [0, 0, 0, 0], "the two parked ones are acquitted"
    assert opened(core) is BreakerReason.FAILING
    assert core.keys.parked()[ParkReason.RETRY] == 0


def test_poison_is_charged_once_another_key_has_succeeded() -> None:
    core = lane(b"a", b"b", b"c", b"good", retry=RetryPolicy(max_attempts=2))
    poison = [begin(core) for _ in range(3)]
    good = begin(core)
    for item in poison:
        end(core, item, POISON)
    assert opened(core) is BreakerReason.FAILING
    end(core, good, Done(), GOOD)
    for attempt in (1, 2):
        now = LATER * attempt
        assert {begin(core, now) for _ in poison} == set(poison)
        for item in poison:
            assert end(core, item, POISON, now=now).dead is (attempt == 2)
            assert item.attempts == attempt
        assert opened(core) is None
    assert all(core.dead_letter_written(item) for item in poison)
    assert core.commits() == {P0: 4}


def test_a_breaker_that_opens_gives_back_one_attempt_and_only_of_what_opened_it() -> None:
    core = lane(b"a", b"b")
    earlier, twice = begin(core), begin(core)
    end(core, earlier, Transient("500", upstream=Upstream.HINDSIGHT, retry_after=300.0))
    end(core, twice, POISON, GOOD)  # an answer before the failure: what failed earlier no longer counts
    assert begin(core, 299.0) is twice
    end(core, twice, POISON, now=299.0)
    core.deliver(P0, [record(2, b"c"), record(3, b"d")], 4)
    for _ in range(2):
        end(core, begin(core, 299.0), POISON, now=299.0)
    assert opened(core) is BreakerReason.FAILING
    assert (earlier.attempts, twice.attempts) == (1, 1)


def test_a_skip_proves_nothing_but_lets_the_next_probe_go_at_once() -> None:
    core = lane(b"a", b"b", b"c")
    end(core, begin(core), DOWN)
    probe = begin(core, 1.0)
    end(core, probe, Skipped(SkipReason.NO_ISSUE), now=1.0)
    assert opened(core) is BreakerReason.UNREACHABLE
    assert begin(core, 1.0).record.key == b"c"


def test_a_refusal_closes_the_breaker() -> None:
    core = lane(b"a", b"b")
    end(core, begin(core), DOWN)
    assert end(core, begin(core, 1.0), REFUSED, now=1.0).dead
    assert opened(core) is None


def test_two_upstreams_down_are_probed_together() -> None:
    core = lane(b"a", b"b", b"c")
    items = [begin(core) for _ in range(2)]
    end(core, items[0], DOWN)
    end(core, items[1], UpstreamDown("401", upstream=Upstream.PAPERCLIP, kind=DownKind.REFUSED))
    probe = begin(core, 10.0)
    assert core.start(10.0) is None
    end(core, probe, DOWN, frozenset({Upstream.PAPERCLIP}), now=10.0)
    assert opened(core, Upstream.PAPERCLIP) is None
    assert opened(core, Upstream.HINDSIGHT) is BreakerReason.UNREACHABLE


def test_a_dead_letter_that_waits_may_be_the_probe() -> None:
    core = lane(b"a", b"b")
    dead, down = begin(core), begin(core)
    end(core, dead, Permanent("no", reason=DeadLetterReason.INVALID))
    assert core.dead_letter_failed(dead, 0.0) is not None
    end(core, down, DOWN)
    for written in (False, True):
        at = LATER * (2 if written else 1)
        while (probe := begin(core, at)) is not dead:
            end(core, probe, DOWN, now=at)
            at += 10.0
        assert core.start(at) is None
        if written:
            assert core.dead_letter_written(dead)
        else:
            assert core.dead_letter_failed(dead, at) is not None
            assert core.keys.parked()[ParkReason.DEAD_LETTER_UNAVAILABLE] == 1
            assert core.commits() == {}
        assert begin(core, at + 10.0) is down
        end(core, down, DOWN, now=at + 10.0)


def test_a_run_of_refusals_slows_the_lane_until_a_success() -> None:
    core = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_SLOW + 3)), limit=100)
    for _ in range(REFUSALS_TO_SLOW):
        item = begin(core)
        end(core, item, REFUSED)
        core.dead_letter_written(item)
    assert opened(core) is BreakerReason.SLOWED
    assert core.start(1.9) is None
    assert core.next_wake(1.9) == 2.0
    slow = begin(core, 2.0)
    assert core.start(2.0) is None
    assert core.next_wake(2.0) == 4.0
    end(core, slow, Done(), GOOD, now=2.5)
    assert opened(core) is None
    assert [begin(core, 2.5), begin(core, 2.5)]


def test_a_skip_does_not_wait_in_a_slowed_lane() -> None:
    core = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_SLOW + 3)), limit=100)
    for _ in range(REFUSALS_TO_SLOW):
        item = begin(core)
        end(core, item, REFUSED)
        core.dead_letter_written(item)
    end(core, begin(core, 2.0), Skipped(SkipReason.NO_AGENT), now=2.0)
    assert opened(core) is BreakerReason.SLOWED
    begin(core, 2.0)
    assert core.start(3.9) is None


def test_an_upstream_that_good_records_do_not_need_slows_only_its_refusals() -> None:
    core = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_SLOW + 5)), limit=100)
    forbidden = Permanent("403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP)
    for _ in range(REFUSALS_TO_SLOW):
        item = begin(core)
        end(core, item, forbidden)
        core.dead_letter_written(item)
    end(core, begin(core, 2.0), Done(), GOOD, now=2.0)
    assert opened(core, Upstream.PAPERCLIP) is None
    end(core, begin(core, 2.0), Done(), GOOD, now=2.0)
    end(core, begin(core, 2.0), forbidden, now=2.0)
    assert opened(core, Upstream.PAPERCLIP) is BreakerReason.SLOWED, "the run of refusals has not ended"
    assert core.start(3.9) is None


def test_an_open_breaker_has_no_probe_where_nothing_waits() -> None:
    core = lane(b"a", retry=RetryPolicy(first=1_000.0, longest=1_000.0))
    end(core, begin(core), Transient("503", retry_after=1_000.0))
    core.breakers[Upstream.HINDSIGHT].down(DownKind.UNREACHABLE, 0.0)
    assert core.start(500.0) is None
    assert core.start(1_000.0) is not None


def test_undecodable_records_do_not_slow_the_lane() -> None:
    core = lane(*(f"{n}".encode() for n in range(REFUSALS_TO_SLOW + 1)), limit=100)
    for _ in range(REFUSALS_TO_SLOW + 1):
        end(core, begin(core), Permanent("no JSON", reason=DeadLetterReason.UNDECODABLE))
    assert all(breaker.reason is None for breaker in core.breakers.values())


# Starting


def test_no_more_than_the_limit_is_in_flight() -> None:
    core = lane(b"a", b"b", b"c", limit=2)
    first = begin(core)
    begin(core)
    assert core.start(0.0) is None
    assert core.next_wake(0.0) is None
    end(core, first, Done())
    assert core.start(0.0) is not None


def test_nothing_starts_when_stopped_and_what_runs_may_end() -> None:
    core = lane(b"a", b"b")
    item = begin(core)
    core.stop()
    assert core.start(LATER) is None
    assert core.next_wake(LATER) is None
    end(core, item, Done())
    assert core.commits() == {P0: 1}


def test_an_idle_lane_has_nothing_to_wake_for_and_a_ready_one_need_not_wait() -> None:
    assert lane().next_wake(0.0) is None
    assert lane(b"a").next_wake(0.0) is None


# Assignments


def test_results_of_another_epoch_change_nothing() -> None:
    core = lane(b"a")
    item = begin(core)
    core.assign([P0])
    assert core.finish(item, Done(), GOOD, 0.0) is None
    assert not core.dead_letter_written(item)
    assert core.dead_letter_failed(item, 0.0) is None
    assert core.commits() == {}
    core.committed(core.epoch - 1, {P0: 99})
    assert core.trackers == {}


def test_records_of_a_partition_that_is_not_ours_are_dropped() -> None:
    core = lane()
    core.deliver(P1, [record(partition=1)], 1)
    core.deliver(P0, [], 7)
    assert core.trackers == {}
    assert core.start(0.0) is None


def test_what_is_done_of_a_partition_that_left_is_forgotten() -> None:
    core = lane(b"a", b"b")
    end(core, begin(core), Done())
    core.assign([P1])
    core.assign([P0])
    core.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    assert begin(core).record.offset == 0


def test_a_probe_that_a_rebalance_cut_short_holds_up_no_other() -> None:
    core = lane(b"a", b"b")
    end(core, begin(core), DOWN)
    begin(core, 1.0)
    core.assign([P0])
    core.deliver(P0, [record(0, b"a")], 1)
    assert core.start(LATER) is not None


def test_a_commit_that_is_acknowledged_late_never_takes_a_later_one_back() -> None:
    core = lane(b"a", b"b")
    end(core, begin(core), Done())
    earlier = core.commits()
    end(core, begin(core), Done())
    core.committed(core.epoch, core.commits())
    core.committed(core.epoch, earlier)
    assert core.commits() == {}


def test_the_load_of_a_partition_pauses_it() -> None:
    core = LaneCore(10, RetryPolicy(), Limits(records=2))
    core.assign([P0, P1])
    core.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    core.deliver(P1, [record(0, b"a", partition=1)], 1)
    assert core.paused() == {P0}
    assert core.buffered() == 3


def test_more_partitions_may_each_hold_less() -> None:
    partitions = [Partition("comments", number) for number in range(2 * FULL_SHARES)]
    core = LaneCore(10, RetryPolicy(), Limits(records=4))
    core.assign(partitions)
    core.deliver(P0, [record(0, b"a"), record(1, b"b")], 2)
    assert core.paused() == {P0}


def test_the_oldest_record_is_the_oldest_that_is_not_done() -> None:
    core = lane(b"a")
    assert core.oldest() == 1_000.0
    end(core, begin(core), Done())
    assert core.oldest() == 0.0
    assert core.assigned == {Partition("comments", 0)}


# Words


def test_our_own_errors_speak_for_themselves_and_foreign_ones_may_quote_a_body() -> None:
    assert in_words(POISON) == "500"
    assert in_words(Transient("")) == "Transient"
    assert in_words(ValueError("a secret")) == "ValueError"
    facts: dict[str, str] = {}
    with pytest.raises(KeyError) as caught:
        facts["a secret"]
    words = in_words(caught.value)
    assert words.startswith("KeyError in test_our_own_errors")
    assert "test_core.py:" in words
    assert "secret" not in words


def test_an_open_breaker_with_nothing_to_probe_starts_nothing_and_waits_for_a_record() -> None:
    core = lane(b"a")
    item = begin(core)
    end(core, item, DOWN)
    core.assign([P0])  # a rebalance took the record away; the breaker stays open
    assert core.start(LATER) is None
    core.deliver(P0, [record(0, b"a")], 1)
    assert begin(core, LATER).record.offset == 0
