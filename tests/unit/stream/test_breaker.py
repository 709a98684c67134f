"""When a lane stops asking an upstream, and when it goes on."""

import pytest

from consumer.errors import DownKind, Upstream
from consumer.stream.breaker import FIRST_PROBE, LAST_PROBE, REFUSALS_TO_THROTTLE, THROTTLED_INTERVAL, Breaker
from consumer.stream.hooks import BreakerReason
from consumer.stream.records import Key


def key(name: str) -> Key:
    return ("t", 0, name.encode())


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(Upstream.HINDSIGHT)


@pytest.mark.parametrize("kind", list(DownKind))
def test_upstream_down_opens_the_breaker_at_once(breaker: Breaker, kind: DownKind) -> None:
    breaker.record_down(kind, 10.0)
    assert breaker.open
    assert breaker.reason == kind.value
    assert breaker.wait_until() == 10.0 + FIRST_PROBE


def test_failures_of_three_keys_open_the_breaker_and_of_one_key_never_do(breaker: Breaker) -> None:
    assert not any(breaker.record_failure(key("a"), 0.0) for _ in range(10))
    assert not breaker.record_failure(key("b"), 0.0)
    assert not breaker.open
    assert breaker.record_failure(key("c"), 0.0)
    assert breaker.reason is BreakerReason.FAILING
    assert not breaker.record_failure(key("d"), 0.0), "it is open already"


def test_a_good_answer_resets_the_count_of_failing_keys(breaker: Breaker) -> None:
    breaker.record_failure(key("a"), 0.0)
    breaker.record_failure(key("b"), 0.0)
    breaker.record_answer()
    assert not breaker.record_failure(key("c"), 0.0)
    assert not breaker.open


def test_a_good_answer_closes_the_breaker(breaker: Breaker) -> None:
    breaker.record_down(DownKind.REFUSED, 0.0)
    breaker.record_answer()
    assert breaker.reason is None
    assert breaker.wait_until() == 0.0


def test_a_refused_record_closes_the_breaker(breaker: Breaker) -> None:
    breaker.record_down(DownKind.UNREACHABLE, 0.0)
    breaker.record_refusal(1.0)
    assert breaker.reason is None


def test_probes_are_at_most_two_seconds_apart(breaker: Breaker) -> None:
    breaker.record_down(DownKind.UNREACHABLE, 0.0)
    gaps, now = [], 0.0
    for _ in range(20):
        breaker.record_start(now)
        gaps.append(breaker.wait_until() - now)
        now = breaker.wait_until()
    assert gaps[0] == FIRST_PROBE
    assert gaps == sorted(gaps)
    assert gaps[-1] == LAST_PROBE == 2.0


def test_more_failures_do_not_delay_the_next_probe(breaker: Breaker) -> None:
    breaker.record_down(DownKind.UNREACHABLE, 0.0)
    breaker.record_down(DownKind.REFUSED, 5.0)
    assert breaker.wait_until() == FIRST_PROBE
    assert breaker.reason is BreakerReason.REFUSED


def test_a_probe_that_did_not_call_the_upstream_lets_the_next_one_start_at_once(breaker: Breaker) -> None:
    breaker.record_down(DownKind.UNREACHABLE, 0.0)
    breaker.record_start(1.0)
    breaker.allow_next_probe()
    assert breaker.open
    assert breaker.wait_until() == 0.0


def test_a_closed_breaker_never_delays_a_start(breaker: Breaker) -> None:
    breaker.record_start(1.0)
    breaker.allow_next_probe()
    breaker.record_success(helped=True)
    assert breaker.wait_until() == 0.0


def test_twenty_refusals_throttle_until_a_success(breaker: Breaker) -> None:
    for _ in range(REFUSALS_TO_THROTTLE - 1):
        breaker.record_refusal(0.0)
    assert breaker.reason is None
    breaker.record_refusal(100.0)
    assert breaker.reason is BreakerReason.THROTTLED
    assert not breaker.open
    assert breaker.wait_until() == 100.0 + THROTTLED_INTERVAL
    breaker.record_start(102.0)
    assert breaker.wait_until() == 104.0
    breaker.record_answer()
    assert breaker.reason is BreakerReason.THROTTLED, "an answer is not yet a success"
    breaker.record_success(helped=True)
    assert breaker.reason is None


def test_a_success_resets_the_count_of_refusals(breaker: Breaker) -> None:
    for _ in range(REFUSALS_TO_THROTTLE - 1):
        breaker.record_refusal(0.0)
    breaker.record_success(helped=True)
    breaker.record_refusal(0.0)
    assert breaker.reason is None


def test_an_outage_of_a_throttled_upstream_opens_the_breaker(breaker: Breaker) -> None:
    for _ in range(REFUSALS_TO_THROTTLE):
        breaker.record_refusal(0.0)
    breaker.record_down(DownKind.UNREACHABLE, 50.0)
    assert breaker.open
    assert breaker.wait_until() == 50.0 + FIRST_PROBE
    breaker.record_answer()
    breaker.record_refusal(60.0)
    assert breaker.reason is BreakerReason.THROTTLED, "and after it the run of refusals goes on"
