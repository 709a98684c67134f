"""What may be committed, against a plain model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.stream.offsets import CompletedOffsets, OffsetTracker

OFFSETS = st.lists(st.integers(0, 60), unique=True).map(sorted)


def test_nothing_is_committable_before_the_first_is_done() -> None:
    tracker = OffsetTracker(5)
    assert tracker.deliver([7, 8, 12], 13) == [7, 8, 12]
    assert (tracker.committable, tracker.position, tracker.pending_count, tracker.dirty) == (7, 13, 3, True)
    tracker.done(8)
    assert (tracker.committable, tracker.pending_count) == (7, 3)
    tracker.done(7)
    assert (tracker.committable, tracker.pending_count) == (12, 1)
    tracker.done(12)
    assert (tracker.committable, tracker.pending_count) == (13, 0)


def test_the_position_covers_holes_in_the_log() -> None:
    tracker = OffsetTracker(0)
    tracker.deliver([0], 3)
    tracker.done(0)
    assert tracker.committable == 3
    tracker.advance(9)
    assert tracker.committable == 9
    tracker.advance(4)
    assert tracker.position == 9


def test_records_delivered_again_after_a_seek_are_not_processed_again() -> None:
    tracker = OffsetTracker(0)
    tracker.deliver([0, 1], 2)
    assert tracker.deliver([0, 1, 2], 3) == [2]
    assert tracker.pending_count == 3


def test_an_acknowledged_commit_leaves_nothing_to_commit() -> None:
    tracker = OffsetTracker(4)
    assert not tracker.dirty
    tracker.deliver([4], 5)
    tracker.done(4)
    assert tracker.dirty
    tracker.committed = 5
    assert not tracker.dirty
    assert tracker.completed() is None


def test_the_next_assignment_skips_completed_offsets() -> None:
    before = OffsetTracker(0)
    before.deliver([0, 1, 2, 3], 4)
    before.done(0)
    before.done(2)
    completed = before.completed()
    assert completed == CompletedOffsets(((0, 1),), frozenset({2}))
    after = OffsetTracker(0, completed)
    assert after.deliver([0, 1, 2, 3], 4) == [1, 3]
    assert after.committable == 1
    after.done(1)
    assert after.committable == 3


@pytest.mark.parametrize("delivered", [0, 1, 2, 3])
def test_completed_offsets_not_delivered_again_survive_the_next_rebalance(delivered: int) -> None:
    first = OffsetTracker(0)
    first.deliver([0, 1, 2, 3, 4], 5)
    for offset in (0, 1, 3):
        first.done(offset)
    second = OffsetTracker(0, first.completed())
    second.deliver(range(delivered), delivered)
    third = OffsetTracker(0, second.completed())
    assert third.deliver(range(5), 5) == [2, 4]


def test_completed_offsets_above_the_position_stay_known() -> None:
    """Another member's late commit can rewind ours; a first record can lie behind a transaction marker."""
    known = CompletedOffsets(((10, 20),), frozenset({25}))
    tracker = OffsetTracker(5, known)
    tracker.deliver([5, 6], 7)
    tracker.done(5)
    assert tracker.completed() == CompletedOffsets(((5, 6), (10, 20)), frozenset({25}))


@given(delivered=OFFSETS, data=st.data(), hole=st.integers(0, 5))
def test_the_committable_offset_is_the_first_delivered_that_is_not_done(
    delivered: list[int], data: st.DataObject, hole: int
) -> None:
    position = (delivered[-1] + 1 if delivered else 0) + hole
    tracker = OffsetTracker(0)
    tracker.deliver(delivered, position)
    done = data.draw(st.permutations(delivered).map(lambda order: order[: data.draw(st.integers(0, len(order)))]))
    for offset in done:
        tracker.done(offset)
    left = [offset for offset in delivered if offset not in done]
    assert tracker.committable == (left[0] if left else position)
    assert tracker.pending_count == len([offset for offset in delivered if left and offset >= left[0]])


@given(delivered=OFFSETS, cuts=st.lists(st.integers(0, 60), max_size=4), data=st.data())
def test_over_any_number_of_rebalances_exactly_the_unfinished_records_are_processed(
    delivered: list[int], cuts: list[int], data: st.DataObject
) -> None:
    first = OffsetTracker(0)
    first.deliver(delivered, 61)
    done = data.draw(st.sets(st.sampled_from(delivered)) if delivered else st.just(set[int]()))
    for offset in done:
        first.done(offset)
    completed = first.completed()
    for cut in cuts:
        tracker = OffsetTracker(0, completed)
        tracker.deliver([offset for offset in delivered if offset < cut], cut)
        completed = tracker.completed()
    last = OffsetTracker(0, completed)
    assert last.deliver(delivered, 61) == [offset for offset in delivered if offset not in done]
