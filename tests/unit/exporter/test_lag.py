import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.exporter.lag import EndHistory, Lag, OffsetRange, depth, lag_records, lag_seconds, lagging, lags, position
from consumer.stream.records import Partition

NOW = 1_796_034_000.0
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
    ("first", "observed", "expected"),
    [
        pytest.param(NOW - 100.0, 0.0, 100.0, id="its age"),
        pytest.param(None, 50.0, 0.0, id="nothing waits: only a marker follows, or nothing"),
        pytest.param(NOW + 5.0, 0.0, 0.0, id="the producer's clock is ahead"),
        pytest.param(NOW + 86_400.0, 400.0, 400.0, id="the producer's clock is a day ahead"),
        pytest.param(0.0, 400.0, 400.0, id="the producer writes no time, or the record could not be read in time"),
        pytest.param(-0.001, 400.0, 400.0, id="the producer writes -1"),
        pytest.param(NOW / 1_000, 400.0, 400.0, id="the producer writes seconds for milliseconds"),
    ],
)
def test_lag_seconds_is_the_age_of_the_first_unread_record(
    first: float | None, observed: float, expected: float
) -> None:
    assert lag_seconds(first, NOW, observed) == expected


def test_the_history_of_log_ends_tells_for_how_long_a_record_has_been_seen() -> None:
    history = EndHistory(size=3)
    assert history.age(ZERO, 0, 100.0) == 0.0
    for now, end in ((100.0, 5), (110.0, 5), (120.0, 8), (130.0, 9)):
        history.note({ZERO: OffsetRange(0, end)}, now)
    ages = {offset: history.age(ZERO, offset, 200.0) for offset in (0, 4, 5, 7, 8, 9)}
    assert ages == {0: 100.0, 4: 100.0, 5: 80.0, 7: 80.0, 8: 70.0, 9: 0.0}
    history.note({ZERO: OffsetRange(0, 20)}, 140.0)
    assert history.age(ZERO, 0, 200.0) == 80.0, "the oldest sample is dropped"
    history.note({ZERO: OffsetRange(0, 2)}, 150.0)
    assert history.age(ZERO, 0, 200.0) == 50.0, "a topic made anew"


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
    logs = {ONE: OffsetRange(0, 0), ZERO: OffsetRange(0, 10)}
    group_lags = lags({ZERO: 7}, logs, {ZERO: NOW - 60.0}, EndHistory(), NOW)
    assert group_lags == (Lag(ZERO, 7, 10, 3, 60.0), Lag(ONE, None, 0, 0, 0.0))


def test_a_deleted_topic_has_no_lag_despite_commits() -> None:
    assert lags({ZERO: 7, ONE: 3}, {ONE: OffsetRange(0, 3)}, {}, EndHistory(), NOW) == (Lag(ONE, 3, 3, 0, 0.0),)
    assert lags({ZERO: 7}, {}, {}, EndHistory(), NOW) == ()


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
