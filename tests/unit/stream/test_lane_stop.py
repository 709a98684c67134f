"""How a lane ends."""

import asyncio

import pytest

from consumer.stream.hooks import AttemptOutcome, CommitFinished, CommitResult, PollFailed
from tests.unit.stream.harness import eventually, running_lane
from tests.unit.stream.samples import P0


async def test_stop_drains_records_in_flight_and_commits_them() -> None:
    async with running_lane() as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        stopping = asyncio.create_task(harness.lane.stop(60.0))
        harness.jobs.gate.set()
        await stopping
        await harness.running
        assert harness.source.committed == {P0: 1}
        assert harness.source.closed


async def test_stop_ends_at_its_deadline_when_the_consumer_hangs() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.attempts(AttemptOutcome.SUCCEEDED))
        harness.source.on_stop = asyncio.Event().wait  # type: ignore[assignment]
        await harness.lane.stop(0.1)
        await harness.running
        assert harness.source.committed == {P0: 1}
        assert "did not stop within 0.1 s" in harness.events_of(PollFailed)[-1].error
        harness.source.on_stop = None


async def test_stop_ends_when_the_consumer_raises_cancelled_error_by_itself() -> None:
    """aiokafka does so when Kafka is gone: it awaits a task that it has cancelled."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async with running_lane() as harness:
        harness.source.on_stop = cancelled
        await harness.lane.stop(1.0)
        await harness.running
        assert "cancelled from inside" in harness.events_of(PollFailed)[-1].error
        harness.source.on_stop = None


async def test_stop_that_is_cancelled_itself_is_cancelled() -> None:
    async with running_lane() as harness:
        harness.source.on_stop = asyncio.Event().wait  # type: ignore[assignment]
        stopping = asyncio.create_task(harness.lane.stop(60.0))
        await eventually(lambda: harness.source.closed)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        harness.source.on_stop = None


async def test_stop_ends_at_its_deadline_when_jobs_commits_and_the_consumer_hang() -> None:
    async with running_lane(limit=64) as harness:
        harness.source.on_commit = asyncio.Event().wait  # type: ignore[assignment]
        harness.source.on_stop = asyncio.Event().wait  # type: ignore[assignment]
        harness.source.produce(b"done")
        await eventually(lambda: harness.attempts(AttemptOutcome.SUCCEEDED))
        harness.jobs.gate.clear()
        harness.jobs.stubborn = True
        for n in range(64):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.jobs.running) == 64)
        await harness.lane.stop(0.06)
        await harness.running
        assert harness.source.committed == {}
        harness.source.on_commit = harness.source.on_stop = None


async def test_stop_during_a_rebalance_ends_although_the_poll_does_not() -> None:
    """aiokafka's `getmany` then waits for an assignment that never comes, and `stop` does not wake it."""
    async with running_lane() as harness:
        polls = harness.source.polls
        await harness.source.revoke()
        await eventually(lambda: harness.source.polls > polls)
        await harness.lane.stop(60.0)
        await harness.running


async def test_stop_before_the_consumer_has_started() -> None:
    async with running_lane(joined=False) as harness:
        starting = asyncio.Event()

        async def hang() -> None:
            starting.set()
            await asyncio.Event().wait()

        harness.source.on_start = hang
        await starting.wait()
        await harness.lane.stop(60.0)
        await harness.running
        assert harness.source.closed


async def test_stop_while_kafka_is_unreachable() -> None:
    async with running_lane(joined=False) as harness:

        async def fail() -> None:
            raise OSError("no broker")

        harness.source.on_start = fail
        await eventually(lambda: len(harness.events_of(PollFailed)) > 2)
        await harness.lane.stop(60.0)
        await harness.running


async def test_a_revoke_during_a_stop_waits_for_it() -> None:
    """Else the stop's commit could land after the next owner's first."""
    async with running_lane() as harness:
        committing, go = asyncio.Event(), asyncio.Event()

        async def slowly() -> None:
            committing.set()
            await go.wait()

        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        harness.source.on_commit = slowly
        stopping = asyncio.create_task(harness.lane.stop(60.0))
        harness.jobs.gate.set()
        await committing.wait()
        revoking = asyncio.create_task(harness.source.revoke())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not revoking.done()
        go.set()
        await asyncio.gather(stopping, revoking)
        assert harness.source.commits == [{P0: 1}]


async def test_an_assignment_after_a_stop_is_ignored() -> None:
    async with running_lane() as harness:
        await harness.lane.stop(60.0)
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        assert harness.lane.state().assigned == {}


async def test_a_commit_in_progress_ends_with_the_lane() -> None:
    async with running_lane(drain_timeout=0.0) as harness:
        committing, cut = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            committing.set()
            try:
                await asyncio.Event().wait()
            finally:
                cut.set()

        harness.source.on_commit = hang
        harness.source.produce(b"a")
        await committing.wait()
        harness.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await harness.running
        await cut.wait()
        harness.source.on_commit = None
        await harness.lane.stop(60.0)
        assert harness.events_of(CommitFinished)[0].result is CommitResult.UNKNOWN
        assert harness.source.commits == [{P0: 1}]


async def test_a_lane_ends_when_its_consumer_is_closed() -> None:
    async with running_lane() as harness:
        harness.source.closed = True
        await harness.running
