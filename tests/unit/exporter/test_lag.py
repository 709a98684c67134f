import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.exporter.lag import Lag, OffsetRange, depth, lag_records, lag_seconds, lagging, lags, position
from consumer.stream.records import Partition

ZERO, ONE = Partition("comments", 0), Partition("comments", 1)


@pytest.mark.parametrize(
    ("committed", "start", "end", "expected"),
    [
        pytest.param(7, 0, 10, 3, id="behind"),
        pytest.param(10, 0, 10, 0, id="caught up"),
        pytest.param(0, 0, 0, 0, id="an empty log"),
        pytest.param(None, 0, 10, 10, id="no commit: the reset policy is earliest"),
        pytest.param(None, 4, 10, 6, id="no commit, and retention has removed the beginning"),
        pytest.param(None, 10, 10, 0, id="no commit, and nothing is left"),
        pytest.param(2, 5, 10, 5, id="committed below the log's start: what is gone cannot be read"),
        pytest.param(2, 10, 10, 0, id="committed below the log's start, and nothing is left"),
        pytest.param(9, 0, 10, 1, id="a transaction's marker at the tail, not passed yet, is an offset"),
        pytest.param(3, 0, 100, 97, id="a compacted topic: holes count, so it is an upper bound"),
        pytest.param(12, 0, 10, 0, id="the end below the commit: a topic made anew"),
    ],
)
def test_lag_records_by_commit_and_offset_range(committed: int | None, start: int, end: int, expected: int) -> None:
    assert lag_records(committed, OffsetRange(start, end)) == expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param(900.0, 100.0, id="its age"),
        pytest.param(None, 0.0, id="nothing waits: only a marker follows, or nothing"),
        pytest.param(1005.0, 0.0, id="the producer's clock is ahead"),
    ],
)
def test_lag_seconds_is_the_age_of_the_first_unread_record(first: float | None, expected: float) -> None:
    assert lag_seconds(first, now=1000.0) == expected


def test_lagging_gives_the_group_position_of_each_partition_with_lag() -> None:
    logs = {
        ZERO: OffsetRange(0, 10),
        ONE: OffsetRange(5, 8),
        Partition("comments", 2): OffsetRange(3, 9),
        Partition("comments", 3): OffsetRange(0, 4),
    }
    committed = {ZERO: 10, ONE: 2, Partition("comments", 3): 6}
    assert lagging(committed, logs) == {ONE: 5, Partition("comments", 2): 3}


def test_lags_of_a_group_are_sorted_by_partition() -> None:
    group_lags = lags({ZERO: 7}, {ONE: OffsetRange(0, 0), ZERO: OffsetRange(0, 10)}, {ZERO: 940.0}, now=1000.0)
    assert group_lags == (Lag(ZERO, 7, 10, 3, 60.0), Lag(ONE, None, 0, 0, 0.0))


def test_a_deleted_topic_has_no_lag_despite_commits() -> None:
    assert lags({ZERO: 7, ONE: 3}, {ONE: OffsetRange(0, 3)}, {}, now=1000.0) == (Lag(ONE, 3, 3, 0, 0.0),)
    assert lags({ZERO: 7}, {}, {}, now=1000.0) == ()


def test_depth_counts_the_records_that_retention_has_left() -> None:
    assert depth([OffsetRange(5, 9), OffsetRange(0, 0), OffsetRange(0, 2)]) == 6
    assert depth([]) == 0


offsets = st.integers(0, 1000)


@given(committed=st.none() | offsets, start=offsets, length=offsets)
def test_lag_is_between_zero_and_the_size_of_the_log(committed: int | None, start: int, length: int) -> None:
    log = OffsetRange(start, start + length)
    records = lag_records(committed, log)
    assert 0 <= records <= length
    assert position(committed, log) >= log.start
    assert bool(records) == (ZERO in lagging({} if committed is None else {ZERO: committed}, {ZERO: log}))
