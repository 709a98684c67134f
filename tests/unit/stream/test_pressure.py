"""When a partition is paused and resumed."""

import pytest

from consumer.stream.pressure import FULL_SHARES, Limits, Pressure

LIMITS = Limits(records=10, bytes=100, span=20)


def loaded(records: int, size: int) -> Pressure:
    pressure = Pressure(LIMITS)
    for _ in range(records):
        pressure.add(size)
    return pressure


@pytest.mark.parametrize(
    ("records", "size", "span", "paused"),
    [(0, 0, 0, False), (9, 1, 9, False), (10, 1, 10, True), (1, 99, 1, False), (1, 100, 1, True), (1, 1, 20, True)],
)
def test_each_limit_pauses(records: int, size: int, span: int, paused: bool) -> None:
    assert loaded(records, size).update(span) is paused


@pytest.mark.parametrize(
    ("records", "size", "span", "paused"),
    [(5, 10, 10, False), (6, 1, 0, True), (1, 51, 0, True), (1, 1, 11, True), (0, 0, 0, False)],
)
def test_it_is_resumed_at_half_of_all_limits(records: int, size: int, span: int, paused: bool) -> None:
    pressure = loaded(records, size)
    pressure.paused = True
    assert pressure.update(span) is paused


def test_between_half_and_all_it_stays_as_it_is() -> None:
    pressure = loaded(10, 1)
    assert pressure.update(0)
    for _ in range(4):
        pressure.remove(1)
        assert pressure.update(0)
    pressure.remove(1)
    assert not pressure.update(0)
    for _ in range(4):
        pressure.add(1)
        assert not pressure.update(0)
    pressure.add(1)
    assert pressure.update(0)
    assert (pressure.records, pressure.bytes) == (10, 10)


@pytest.mark.parametrize(
    ("partitions", "share"),
    [
        (1, LIMITS),
        (FULL_SHARES, LIMITS),
        (2 * FULL_SHARES, Limits(records=5, bytes=50, span=20)),
        (1_000 * FULL_SHARES, Limits(records=1, bytes=1, span=20)),
    ],
)
def test_many_partitions_share_what_some_may_hold(partitions: int, share: Limits) -> None:
    assert LIMITS.share(partitions) == share
