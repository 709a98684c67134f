"""When a lane commits, and what it makes of positions that move by themselves."""

import asyncio

import pytest

from consumer.stream import committer
from consumer.stream.hooks import CommitFinished, CommitResult, RecordsExpired
from consumer.stream.records import Partition
from tests.unit.stream.harness import LaneHarness, eventually, running_lane
from tests.unit.stream.samples import P0, P1


async def polled(harness: LaneHarness) -> None:
    """The lane goes round a few times: ticks too, which are as short."""
    polls = harness.source.polls
    await eventually(lambda: harness.source.polls > polls + 5)


async def test_only_the_completed_prefix_is_committed() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"fast")
        await eventually(lambda: harness.source.committed == {P0: 1})
        harness.jobs.gate.clear()
        harness.source.produce(b"slow")
        await eventually(lambda: harness.jobs.running)
        gate, harness.jobs.gate = harness.jobs.gate, asyncio.Event()
        harness.jobs.gate.set()
        harness.source.produce(b"fast")
        await eventually(lambda: harness.jobs.order[0, b"fast"] == [0, 2])
        await polled(harness)
        assert harness.source.committed == {P0: 1}
        gate.set()
        await eventually(lambda: harness.source.committed == {P0: 3})


async def test_a_marker_at_the_tail_is_committed_so_that_lag_is_0() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.source.committed == {P0: 1})
        harness.source.hole()
        await eventually(lambda: harness.lag == 0)
        assert harness.source.committed == {P0: 2}


async def test_a_partition_of_only_markers_is_committed() -> None:
    async with running_lane(P0, P1) as harness:
        harness.source.hole(P1)
        await eventually(lambda: harness.source.committed.get(P1) == 1)
        assert harness.jobs.started == 0


async def test_a_marker_behind_an_unfinished_record_is_not_committed() -> None:
    async with running_lane() as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        harness.source.hole()
        await eventually(lambda: harness.jobs.running)
        await polled(harness)
        assert harness.source.committed == {}
        harness.jobs.gate.set()
        await eventually(lambda: harness.lag == 0)


async def test_a_position_read_during_a_delivery_is_not_committed() -> None:
    async with running_lane(limit=1) as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = harness.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return await position(partition)

        harness.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        harness.source.hole()
        await eventually(lambda: harness.jobs.running)
        go.set()
        harness.source.position = position  # type: ignore[method-assign]
        await polled(harness)
        assert harness.source.committed == {P0: 1}
        harness.jobs.gate.set()
        await eventually(lambda: harness.lag == 0)


async def test_positions_moved_by_a_failed_poll_are_not_committed() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = harness.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return harness.source.ends[P0]

        harness.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        harness.source.position = position  # type: ignore[method-assign]
        harness.source.failures.append(OSError())
        harness.jobs.gate.clear()
        harness.source.produce(b"b")
        await eventually(lambda: not harness.source.failures)
        go.set()
        await polled(harness)
        assert harness.source.committed == {P0: 1}
        harness.jobs.gate.set()
        await eventually(lambda: harness.lag == 0)
        assert harness.jobs.order[0, b"b"] == [1]


async def test_unavailable_positions_do_not_block_commits() -> None:
    async with running_lane() as harness:

        async def fail(partition: Partition) -> int:
            raise OSError("no broker")

        harness.source.position = fail  # type: ignore[method-assign]
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)


@pytest.mark.parametrize(
    ("hangs", "result"), [(True, CommitResult.UNKNOWN), (False, CommitResult.FAILED)], ids=["hangs", "fails"]
)
async def test_a_failed_or_timed_out_commit_is_reported_and_retried(hangs: bool, result: CommitResult) -> None:
    async with running_lane() as harness:

        async def fail() -> None:
            harness.source.on_commit = None
            if hangs:
                await asyncio.Event().wait()
            raise OSError("no coordinator")

        harness.source.on_commit = fail
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        ended = harness.events_of(CommitFinished)
        assert [event.result for event in ended] == [result, CommitResult.COMMITTED]
        assert ended[0].error == ("timed out" if hangs else "OSError: no coordinator")
        assert ended[1].partitions == 1


async def test_a_commit_cancelled_from_inside_is_unknown_and_retried() -> None:
    async with running_lane() as harness:

        async def cancelled() -> None:
            harness.source.on_commit = None
            raise asyncio.CancelledError

        harness.source.on_commit = cancelled
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        assert [event.result for event in harness.events_of(CommitFinished)] == [
            CommitResult.UNKNOWN,
            CommitResult.COMMITTED,
        ]


async def test_an_error_in_a_tick_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would work on for ever and commit nothing."""
    async with running_lane() as harness:
        monkeypatch.setattr(harness.scheduler, "committable", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await harness.running
        monkeypatch.undo()


async def test_records_deleted_by_retention_before_they_were_read_are_reported() -> None:
    async with running_lane(joined=False) as harness:
        for _ in range(10):
            harness.source.produce(b"a")
        harness.source.committed[P0] = 3
        harness.source.retain_from(7)
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0)
        await harness.drain()
        assert harness.events_of(RecordsExpired) == [RecordsExpired("retain", "comments", 0, 4)]
        assert harness.jobs.order[0, b"a"] == [7, 8, 9]


async def test_a_group_without_a_commit_reports_no_expired_records() -> None:
    async with running_lane(joined=False) as harness:
        for _ in range(3):
            harness.source.produce(b"a")
        harness.source.retain_from(2)
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0)
        await harness.drain()
        assert harness.events_of(RecordsExpired) == []


async def test_records_that_expire_while_their_partition_is_paused_are_reported_once() -> None:
    """An upstream that is down for longer than the topic keeps its records."""
    async with running_lane(P0) as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        harness.scheduler.paused = lambda: {P0}  # type: ignore[method-assign]
        await eventually(lambda: harness.source.paused == {P0})
        for _ in range(10):
            harness.source.produce(b"a")
        harness.source.retain_from(6)
        for _ in range(3):
            harness.clock.now += committer.START_CHECK_INTERVAL
            await polled(harness)
        assert harness.events_of(RecordsExpired) == [RecordsExpired("retain", "comments", 0, 5)]
        harness.source.retain_from(8)
        harness.clock.now += committer.START_CHECK_INTERVAL
        await eventually(lambda: len(harness.events_of(RecordsExpired)) == 2)
        assert harness.events_of(RecordsExpired)[1].records == 2


async def test_expired_records_are_reported_once_over_rebalances() -> None:
    async with running_lane(joined=False) as harness:
        for _ in range(10):
            harness.source.produce(b"a")
        harness.source.committed[P0] = 3
        harness.source.retain_from(10)
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0)
        await eventually(lambda: harness.events_of(RecordsExpired))
        await eventually(lambda: harness.source.committed == {P0: 10})
        harness.source.committed[P0] = 3  # as if that commit had not arrived
        for _ in range(3):
            await harness.source.rebalance(P0)
            await polled(harness)
        assert harness.events_of(RecordsExpired) == [RecordsExpired("retain", "comments", 0, 7)]


async def test_positions_of_another_assignment_are_not_used() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        asked, go = asyncio.Event(), asyncio.Event()
        position = harness.source.position

        async def slowly(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return 99

        harness.source.position = slowly  # type: ignore[method-assign]
        await asked.wait()
        harness.source.position = position  # type: ignore[method-assign]
        harness.scheduler.assign([P0])
        harness.scheduler.locate(P0, 1)
        go.set()
        await polled(harness)
        assert harness.source.committed == {P0: 1}


async def test_nothing_is_committed_between_assignments() -> None:
    async with running_lane() as harness:
        await harness.lane._committer.halt()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.order[0, b"a"])
        await harness.lane._committer.tick()
        assert harness.source.commits == []


async def test_log_starts_read_before_a_rebalance_are_not_used() -> None:
    async with running_lane(joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        asked, go = asyncio.Event(), asyncio.Event()
        start_of = harness.source.start_of

        async def slowly(partition: Partition) -> tuple[int | None, int]:
            asked.set()
            await go.wait()
            return 0, 99

        harness.source.start_of = slowly  # type: ignore[method-assign]
        await harness.source.rebalance(P0)
        await asked.wait()
        harness.source.start_of = start_of  # type: ignore[method-assign]
        harness.scheduler.assign([P0])
        go.set()
        harness.source.produce(b"a")
        await harness.drain()
        assert harness.events_of(RecordsExpired) == []
        assert harness.jobs.order[0, b"a"] == [0]


async def test_a_partition_without_a_leader_does_not_keep_the_others_from_lag_0() -> None:
    async with running_lane(P0, P1, joined=False) as harness:

        async def leaderless(partition: Partition) -> None:
            if partition == P1:
                await asyncio.Event().wait()

        harness.source.on_start_of = leaderless
        harness.source.hole(P0)
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0, P1)
        await eventually(lambda: harness.source.committed == {P0: 1})
        harness.source.on_start_of = None
        harness.source.hole(P1)
        harness.clock.now += committer.START_RETRY_INTERVAL
        await eventually(lambda: harness.source.committed == {P0: 1, P1: 1})


async def test_log_starts_are_checked_once_for_each_assignment_and_then_once_a_minute() -> None:
    async with running_lane() as harness:
        asked = 0

        async def count(_partition: Partition) -> None:
            nonlocal asked
            asked += 1

        await eventually(lambda: harness.scheduler.trackers)
        harness.source.on_start_of = count
        before = asked
        for n in range(1, 4):
            await harness.source.rebalance(P0)
            await eventually(lambda: asked == before + n)  # noqa: B023 - awaited here
            await polled(harness)
            assert asked == before + n
        harness.clock.now += committer.START_CHECK_INTERVAL
        await eventually(lambda: asked == before + 4)
