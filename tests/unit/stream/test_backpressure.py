"""When a partition is paused and resumed."""

import pytest

from consumer.stream.backpressure import FULL_SHARES, BackpressureLimits, PartitionLoad

LIMITS = BackpressureLimits(records=10, bytes=100, pending=20)


def loaded(records: int, size: int) -> PartitionLoad:
    load = PartitionLoad(LIMITS)
    for _ in range(records):
        load.add(size)
    return load


@pytest.mark.parametrize(
    ("records", "size", "pending", "paused"),
    [(0, 0, 0, False), (9, 1, 9, False), (10, 1, 10, True), (1, 99, 1, False), (1, 100, 1, True), (1, 1, 20, True)],
)
def test_each_limit_pauses(records: int, size: int, pending: int, paused: bool) -> None:
    assert loaded(records, size).update(pending) is paused


@pytest.mark.parametrize(
    ("records", "size", "pending", "paused"),
    [(5, 10, 10, False), (6, 1, 0, True), (1, 51, 0, True), (1, 1, 11, True), (0, 0, 0, False)],
)
def test_it_is_resumed_at_half_of_all_limits(records: int, size: int, pending: int, paused: bool) -> None:
    load = loaded(records, size)
    load.paused = True
    assert load.update(pending) is paused


def test_between_half_and_all_it_stays_as_it_is() -> None:
    load = loaded(10, 1)
    assert load.update(0)
    for _ in range(4):
        load.remove(1)
        assert load.update(0)
    load.remove(1)
    assert not load.update(0)
    for _ in range(4):
        load.add(1)
        assert not load.update(0)
    load.add(1)
    assert load.update(0)
    assert (load.records, load.bytes) == (10, 10)


@pytest.mark.parametrize(
    ("partitions", "share"),
    [
        (1, LIMITS),
        (FULL_SHARES, LIMITS),
        (2 * FULL_SHARES, BackpressureLimits(records=5, bytes=50, pending=20)),
        (1_000 * FULL_SHARES, BackpressureLimits(records=1, bytes=1, pending=20)),
    ],
)
def test_many_partitions_share_what_some_may_hold(partitions: int, share: BackpressureLimits) -> None:
    assert LIMITS.share(partitions) == share
