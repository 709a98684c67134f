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
def test_a_partition_is_paused_at_any_of_its_limits(records: int, size: int, pending: int, paused: bool) -> None:
    assert loaded(records, size).update(pending) is paused


@pytest.mark.parametrize(
    ("records", "size", "pending", "paused"),
    [(5, 10, 10, False), (6, 1, 0, True), (1, 51, 0, True), (1, 1, 11, True), (0, 0, 0, False)],
)
def test_a_paused_partition_resumes_at_half_of_all_limits(records: int, size: int, pending: int, paused: bool) -> None:
    load = loaded(records, size)
    load.paused = True
    assert load.update(pending) is paused


def test_between_half_and_full_a_partition_stays_paused_or_running() -> None:
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
def test_more_than_16_partitions_share_the_limits_of_16(partitions: int, share: BackpressureLimits) -> None:
    assert LIMITS.share(partitions) == share


def test_waiting_records_count_only_towards_a_larger_limit_of_bytes() -> None:
    load = loaded(10, 10)
    assert load.update(0)
    for _ in range(6):
        load.wait(10)
    assert not load.update(0)
    for _ in range(29):
        load.add(10)
        load.wait(10)
        assert not load.update(0)
    load.add(10)
    load.wait(10)
    assert load.update(0), "four times the limit of bytes"
    for _ in range(30):
        load.resume(10)
        load.remove(10)
    assert (load.records, load.bytes, load.waiting_records, load.waiting_bytes) == (10, 100, 6, 60)
    assert not load.update(0)


def test_the_default_limits() -> None:
    assert BackpressureLimits() == BackpressureLimits(records=1_000, bytes=4_000_000, pending=10_000)
