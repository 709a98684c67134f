"""How a lane ends."""

import asyncio

import pytest

from consumer.stream.signals import CommitEnded, CommitResult, Ending, PollFailed
from tests.unit.stream.harness import lane_on, until
from tests.unit.stream.samples import P0


async def test_stop_lets_what_is_in_flight_end_and_commits_it() -> None:
    async with lane_on() as rig:
        rig.work.gate.clear()
        rig.source.produce(b"a")
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        stopping = asyncio.create_task(rig.lane.stop(60.0))
        rig.work.gate.set()
        await stopping
        await rig.running
        assert rig.source.committed == {P0: 1}
        assert rig.source.closed


async def test_stop_ends_when_the_consumer_does_not() -> None:
    async with lane_on() as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.ended(Ending.SUCCEEDED))
        rig.source.on_stop = asyncio.Event().wait  # type: ignore[assignment]
        await rig.lane.stop(0.1)
        await rig.running
        assert rig.source.committed == {P0: 1}
        assert "did not stop within 0.1 s" in rig.told(PollFailed)[-1].error
        rig.source.on_stop = None


async def test_stop_ends_when_neither_jobs_nor_commits_nor_the_consumer_do() -> None:
    async with lane_on(limit=64) as rig:
        rig.source.on_commit = asyncio.Event().wait  # type: ignore[assignment]
        rig.source.on_stop = asyncio.Event().wait  # type: ignore[assignment]
        rig.source.produce(b"done")
        await until(lambda: rig.ended(Ending.SUCCEEDED))
        rig.work.gate.clear()
        rig.work.stubborn = True
        for n in range(64):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.work.running) == 64)
        await rig.lane.stop(0.06)
        await rig.running
        assert rig.source.committed == {}
        rig.source.on_commit = rig.source.on_stop = None


async def test_stop_in_the_middle_of_a_rebalance_ends_although_the_poll_does_not() -> None:
    """aiokafka's `getmany` then waits for an assignment that never comes, and `stop` does not wake it."""
    async with lane_on() as rig:
        polls = rig.source.polls
        await rig.source.revoke()
        await until(lambda: rig.source.polls > polls)
        await rig.lane.stop(60.0)
        await rig.running


async def test_stop_before_the_consumer_has_started() -> None:
    async with lane_on(joined=False) as rig:
        starting = asyncio.Event()

        async def hang() -> None:
            starting.set()
            await asyncio.Event().wait()

        rig.source.on_start = hang
        await starting.wait()
        await rig.lane.stop(60.0)
        await rig.running
        assert rig.source.closed


async def test_stop_while_kafka_is_not_there_yet() -> None:
    async with lane_on(joined=False) as rig:

        async def fail() -> None:
            raise OSError("no broker")

        rig.source.on_start = fail
        await until(lambda: len(rig.told(PollFailed)) > 2)
        await rig.lane.stop(60.0)
        await rig.running


async def test_a_revoke_in_the_middle_of_a_stop_waits_for_it() -> None:
    """Else the stop's commit could land after the next owner's first."""
    async with lane_on() as rig:
        committing, go = asyncio.Event(), asyncio.Event()

        async def slowly() -> None:
            committing.set()
            await go.wait()

        rig.work.gate.clear()
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        rig.source.on_commit = slowly
        stopping = asyncio.create_task(rig.lane.stop(60.0))
        rig.work.gate.set()
        await committing.wait()
        revoking = asyncio.create_task(rig.source.revoke())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not revoking.done()
        go.set()
        await asyncio.gather(stopping, revoking)
        assert rig.source.commits == [{P0: 1}]


async def test_an_assignment_after_a_stop_begins_nothing() -> None:
    async with lane_on() as rig:
        await rig.lane.stop(60.0)
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        assert rig.lane.state().assigned == {}


async def test_a_tick_that_is_committing_ends_with_the_lane() -> None:
    async with lane_on(drain_timeout=0.0) as rig:
        committing, cut = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            committing.set()
            try:
                await asyncio.Event().wait()
            finally:
                cut.set()

        rig.source.on_commit = hang
        rig.source.produce(b"a")
        await committing.wait()
        rig.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rig.running
        await cut.wait()
        rig.source.on_commit = None
        await rig.lane.stop(60.0)
        assert rig.told(CommitEnded)[0].result is CommitResult.UNKNOWN
        assert rig.source.commits == [{P0: 1}]


async def test_a_lane_whose_consumer_is_closed_has_ended() -> None:
    async with lane_on() as rig:
        rig.source.closed = True
        await rig.running
