"""The back-off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.stream.retry import RetryPolicy

POLICY = RetryPolicy(first=1.0, longest=300.0)


@given(failures=st.integers(1, 10_000))
def test_the_delay_is_random_under_a_doubling_bound(failures: int) -> None:
    assert 0 <= POLICY.delay(failures) <= min(300.0, 2.0 ** min(failures - 1, 30))


@pytest.mark.parametrize(("failures", "bound"), [(1, 1.0), (2, 2.0), (9, 256.0), (10, 300.0), (1_000, 300.0)])
def test_the_delay_may_reach_its_bound(monkeypatch: pytest.MonkeyPatch, failures: int, bound: float) -> None:
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    assert POLICY.delay(failures) == bound


@given(failures=st.integers(1, 100), retry_after=st.floats(0, 300))
def test_the_delay_is_at_least_retry_after(failures: int, retry_after: float) -> None:
    assert POLICY.delay(failures, retry_after) >= retry_after


def test_retry_after_is_bounded_by_the_longest_delay() -> None:
    assert POLICY.delay(1, 86_400.0) == 300.0
