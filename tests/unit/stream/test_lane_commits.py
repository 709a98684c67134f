"""When a lane commits, and what it makes of positions that move by themselves."""

import asyncio

import pytest

from consumer.stream import commits
from consumer.stream.records import Partition
from consumer.stream.signals import CommitEnded, CommitResult, Overtaken
from tests.unit.stream.harness import Rig, lane_on, until
from tests.unit.stream.samples import P0, P1


async def polled(rig: Rig) -> None:
    """The lane goes round a few times: ticks too, which are as short."""
    polls = rig.source.polls
    await until(lambda: rig.source.polls > polls + 5)


async def test_only_the_completed_prefix_is_committed() -> None:
    async with lane_on() as rig:
        rig.source.produce(b"fast")
        await until(lambda: rig.source.committed == {P0: 1})
        rig.work.gate.clear()
        rig.source.produce(b"slow")
        await until(lambda: rig.work.running)
        gate, rig.work.gate = rig.work.gate, asyncio.Event()
        rig.work.gate.set()
        rig.source.produce(b"fast")
        await until(lambda: rig.work.order[0, b"fast"] == [0, 2])
        await polled(rig)
        assert rig.source.committed == {P0: 1}
        gate.set()
        await until(lambda: rig.source.committed == {P0: 3})


async def test_a_marker_at_the_tail_is_committed_so_that_lag_is_0() -> None:
    async with lane_on() as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.source.committed == {P0: 1})
        rig.source.hole()
        await until(lambda: rig.lag == 0)
        assert rig.source.committed == {P0: 2}


async def test_a_topic_of_markers_only_is_committed_too() -> None:
    async with lane_on(P0, P1) as rig:
        rig.source.hole(P1)
        await until(lambda: rig.source.committed.get(P1) == 1)
        assert rig.work.started == 0


async def test_a_marker_behind_a_record_that_is_not_done_waits_for_it() -> None:
    async with lane_on() as rig:
        rig.work.gate.clear()
        rig.source.produce(b"a")
        rig.source.hole()
        await until(lambda: rig.work.running)
        await polled(rig)
        assert rig.source.committed == {}
        rig.work.gate.set()
        await until(lambda: rig.lag == 0)


async def test_a_position_read_while_records_came_in_is_not_taken_for_theirs() -> None:
    async with lane_on(limit=1) as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = rig.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return await position(partition)

        rig.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        rig.work.gate.clear()
        rig.source.produce(b"a")
        rig.source.hole()
        await until(lambda: rig.work.running)
        go.set()
        rig.source.position = position  # type: ignore[method-assign]
        await polled(rig)
        assert rig.source.committed == {P0: 1}
        rig.work.gate.set()
        await until(lambda: rig.lag == 0)


async def test_positions_that_a_failed_poll_has_moved_are_not_committed() -> None:
    async with lane_on() as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = rig.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return rig.source.ends[P0]

        rig.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        rig.source.position = position  # type: ignore[method-assign]
        rig.source.failures.append(OSError())
        rig.work.gate.clear()
        rig.source.produce(b"b")
        await until(lambda: not rig.source.failures)
        go.set()
        await polled(rig)
        assert rig.source.committed == {P0: 1}
        rig.work.gate.set()
        await until(lambda: rig.lag == 0)
        assert rig.work.order[0, b"b"] == [1]


async def test_positions_that_cannot_be_had_do_not_hold_up_commits() -> None:
    async with lane_on() as rig:

        async def fail(partition: Partition) -> int:
            raise OSError("no broker")

        rig.source.position = fail  # type: ignore[method-assign]
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)


@pytest.mark.parametrize(
    ("hangs", "result"), [(True, CommitResult.UNKNOWN), (False, CommitResult.FAILED)], ids=["hangs", "fails"]
)
async def test_a_commit_that_does_not_arrive_is_told_and_tried_again(hangs: bool, result: CommitResult) -> None:
    async with lane_on() as rig:

        async def fail() -> None:
            rig.source.on_commit = None
            if hangs:
                await asyncio.Event().wait()
            raise OSError("no coordinator")

        rig.source.on_commit = fail
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        ended = rig.told(CommitEnded)
        assert [each.result for each in ended] == [result, CommitResult.COMMITTED]
        assert ended[0].error == ("timed out" if hangs else "OSError: no coordinator")
        assert ended[1].offsets == 1


async def test_a_commit_cancelled_from_inside_is_unknown_and_tried_again() -> None:
    async with lane_on() as rig:

        async def cancelled() -> None:
            rig.source.on_commit = None
            raise asyncio.CancelledError

        rig.source.on_commit = cancelled
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        assert [each.result for each in rig.told(CommitEnded)] == [CommitResult.UNKNOWN, CommitResult.COMMITTED]


async def test_a_tick_that_fails_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would work on for ever and commit nothing."""
    async with lane_on() as rig:
        monkeypatch.setattr(rig.core, "commits", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await rig.running
        monkeypatch.undo()


async def test_records_that_retention_removed_before_they_were_read_are_told() -> None:
    async with lane_on(joined=False) as rig:
        for _ in range(10):
            rig.source.produce(b"a")
        rig.source.committed[P0] = 3
        rig.source.retain_from(7)
        await until(lambda: rig.source.polls)
        await rig.source.rebalance(P0)
        await rig.drained()
        assert rig.told(Overtaken) == [Overtaken("retain", "comments", 0, 4)]
        assert rig.work.order[0, b"a"] == [7, 8, 9]


async def test_a_group_without_a_commit_has_lost_nothing_when_the_log_begins_late() -> None:
    async with lane_on(joined=False) as rig:
        for _ in range(3):
            rig.source.produce(b"a")
        rig.source.retain_from(2)
        await until(lambda: rig.source.polls)
        await rig.source.rebalance(P0)
        await rig.drained()
        assert rig.told(Overtaken) == []


async def test_a_partition_that_is_overtaken_while_it_is_paused_is_told_once() -> None:
    """An upstream that is down for longer than the topic keeps its records."""
    async with lane_on(P0) as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        rig.core.paused = lambda: {P0}  # type: ignore[method-assign]
        await until(lambda: rig.source.paused == {P0})
        for _ in range(10):
            rig.source.produce(b"a")
        rig.source.retain_from(6)
        for _ in range(3):
            rig.clock.now += commits.START_CHECK_INTERVAL
            await polled(rig)
        assert rig.told(Overtaken) == [Overtaken("retain", "comments", 0, 5)]
        rig.source.retain_from(8)
        rig.clock.now += commits.START_CHECK_INTERVAL
        await until(lambda: len(rig.told(Overtaken)) == 2)
        assert rig.told(Overtaken)[1].records == 2


async def test_positions_of_another_assignment_are_not_used() -> None:
    async with lane_on() as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = rig.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return 99

        rig.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        rig.source.position = position  # type: ignore[method-assign]
        rig.core.assign([P0])
        rig.core.locate(P0, 1)
        go.set()
        await polled(rig)
        assert rig.source.committed == {P0: 1}


async def test_nothing_is_committed_between_assignments() -> None:
    async with lane_on() as rig:
        await rig.lane._committer.halt()
        rig.source.produce(b"a")
        await until(lambda: rig.work.order[0, b"a"])
        await rig.lane._committer.tick()
        assert rig.source.commits == []


async def test_starts_that_another_rebalance_has_made_old_are_not_used() -> None:
    async with lane_on(joined=False) as rig:
        await until(lambda: rig.source.polls)
        asked, go = asyncio.Event(), asyncio.Event()
        starts = rig.source.starts

        async def slowly(partitions: object) -> dict[object, object]:
            asked.set()
            await go.wait()
            return {P0: (0, 99)}

        rig.source.starts = slowly  # type: ignore[method-assign, assignment]
        await rig.source.rebalance(P0)
        await asked.wait()
        rig.source.starts = starts  # type: ignore[method-assign]
        rig.core.assign([P0])
        go.set()
        rig.source.produce(b"a")
        await rig.drained()
        assert rig.told(Overtaken) == []
        assert rig.work.order[0, b"a"] == [0]
