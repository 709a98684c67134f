"""A lane whose partitions come and go."""

import asyncio
import contextlib

import pytest

from consumer.errors import DeadLetterReason, Permanent
from consumer.stream import lane
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.hooks import AttemptOutcome, CommitFinished, CommitResult, PollFailed, Rebalanced, RebalanceKind
from consumer.stream.records import Partition
from tests.unit.stream.harness import LaneHarness, eventually, running_lane
from tests.unit.stream.samples import P0, P1


def kinds(harness: LaneHarness) -> list[tuple[RebalanceKind, bool]]:
    return [(event.kind, event.drained) for event in harness.events_of(Rebalanced)]


async def test_a_revoke_drains_records_in_flight_and_commits_them() -> None:
    async with running_lane(drain_timeout=30.0) as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        revoking = asyncio.create_task(harness.source.revoke())
        await eventually(lambda: harness.lane.state().rebalancing)
        harness.jobs.gate.set()
        await revoking
        assert harness.source.committed == {P0: 1}
        assert harness.jobs.order[0, b"a"] == [0], "nothing new is started"
        assert kinds(harness)[-1] == (RebalanceKind.REVOKED, True)
        assert harness.lane.state().assigned == {}


async def test_a_revoke_cancels_jobs_that_outlast_the_drain_timeout() -> None:
    async with running_lane(limit=64) as harness:
        harness.source.produce(b"done")
        await eventually(lambda: harness.attempts(AttemptOutcome.SUCCEEDED))
        harness.jobs.gate.clear()
        for n in range(64):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.jobs.running) == 64)
        await harness.source.revoke()
        assert harness.jobs.cancelled == 64
        assert harness.jobs.running == []
        assert harness.source.committed == {P0: 1}
        assert kinds(harness)[-1] == (RebalanceKind.REVOKED, False)
        harness.jobs.gate.set()
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        await harness.drain()
        assert sum(len(offsets) for offsets in harness.jobs.order.values()) == 1 + 64 * 2
        assert harness.jobs.order[0, b"done"] == [0], "only what lies above the committed offset is repeated"


async def test_results_of_jobs_that_survive_cancellation_are_dropped() -> None:
    async with running_lane(P0, P1, joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0)
        harness.jobs.stubborn = True
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        await harness.source.revoke()
        assert harness.jobs.running
        harness.source.assign(P1)
        await harness.source.listener.assigned()
        harness.jobs.gate.set()
        await eventually(lambda: not harness.jobs.running)
        harness.source.produce(b"b", partition=P1)
        await eventually(lambda: harness.source.committed == {P1: 1})
        assert {event.facts["partition"] for event in harness.attempts(AttemptOutcome.SUCCEEDED)} == {1}


async def test_an_eviction_skips_the_drain_and_commits_nothing() -> None:
    async with running_lane(drain_timeout=3_600.0) as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        await harness.source.revoke(evicted=True)
        assert harness.jobs.cancelled == 1
        assert harness.source.commits == []
        assert kinds(harness)[-1] == (RebalanceKind.LOST, False)
        harness.jobs.gate.set()
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        await harness.drain()


async def test_records_that_arrive_before_the_listener_is_called_belong_to_the_new_assignment() -> None:
    async with running_lane(P0, P1) as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        await harness.source.revoke()
        harness.source.assign(P0, P1)
        harness.source.produce(b"early", partition=P1)
        await eventually(lambda: harness.jobs.order[1, b"early"])
        epoch = harness.scheduler.epoch
        await harness.source.listener.assigned()
        assert harness.scheduler.epoch == epoch
        await harness.drain()
        assert harness.jobs.order[1, b"early"] == [0]


async def test_a_new_assignment_starts_unpaused_and_is_paused_again_when_full() -> None:
    async with running_lane(limit=1, limits=BackpressureLimits(records=5)) as harness:
        harness.jobs.gate.clear()
        for n in range(20):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: harness.source.paused == {P0})
        await harness.source.rebalance(P0)
        await eventually(lambda: harness.source.paused == {P0})
        harness.jobs.gate.set()
        await harness.drain()


async def test_completed_but_uncommitted_records_are_not_repeated_after_a_rebalance() -> None:
    async with running_lane(limit=4) as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"slow")
        await eventually(lambda: harness.jobs.running)
        gate, harness.jobs.gate = harness.jobs.gate, asyncio.Event()
        harness.jobs.gate.set()
        for n in range(5):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.attempts(AttemptOutcome.SUCCEEDED)) == 5)
        for _ in range(3):
            await harness.source.rebalance(P0)
        gate.set()
        await harness.drain()
        assert harness.jobs.order[0, b"slow"] == [0, 0]
        assert all(len(harness.jobs.order[0, f"{n}".encode()]) == 1 for n in range(5))


async def test_a_commit_cancelled_by_a_revoke_is_unknown_and_does_not_continue() -> None:
    async with running_lane() as harness:
        begun, cut = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.set()
                harness.source.on_commit = None
                raise

        harness.source.on_commit = hang
        harness.source.produce(b"a")
        await begun.wait()
        await harness.source.revoke()
        assert cut.is_set()
        assert harness.source.commits == [{P0: 1}], "the revoke's own"
        results = [ended.result for ended in harness.events_of(CommitFinished)]
        assert results == [CommitResult.UNKNOWN, CommitResult.COMMITTED]


async def test_a_revoke_ends_even_if_its_commit_hangs() -> None:
    async with running_lane() as harness:
        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        harness.source.on_commit = asyncio.Event().wait  # type: ignore[assignment]
        revoking = asyncio.create_task(harness.source.revoke())
        harness.jobs.gate.set()
        await revoking
        assert [ended.result for ended in harness.events_of(CommitFinished)][-1] is CommitResult.UNKNOWN
        assert harness.source.committed == {}
        harness.source.on_commit = None


async def test_a_revoke_whose_commit_is_cancelled_still_drops_the_assignment() -> None:
    """A `CancelledError` from inside the client must not leave the old assignment in place."""
    async with running_lane() as harness:

        async def cancelled() -> None:
            raise asyncio.CancelledError

        harness.jobs.gate.clear()
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        harness.source.on_commit = cancelled
        revoking = asyncio.create_task(harness.source.revoke())
        harness.jobs.gate.set()
        await asyncio.gather(revoking, return_exceptions=True)
        harness.source.on_commit = None
        assert harness.lane.state().assigned == {}
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        await harness.drain()


@pytest.mark.parametrize("taken", [True, False])
async def test_a_dead_letter_result_after_its_partition_was_revoked_is_dropped(taken: bool) -> None:
    async with running_lane() as harness:
        begun, go = asyncio.Event(), asyncio.Event()

        async def stubborn(*_: object) -> None:
            begun.set()
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()
            if not taken:
                raise OSError

        harness.lane._executor._write = stubborn
        harness.jobs.script[b"a"] = [Permanent("422", reason=DeadLetterReason.REJECTED)]
        harness.source.produce(b"a")
        await begun.wait()
        await harness.source.revoke()
        go.set()
        await eventually(lambda: not harness.lane._executor.tasks)
        assert harness.attempts(*AttemptOutcome) == []
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        await harness.drain()
        assert harness.jobs.order[0, b"a"] == [0, 0]


async def test_a_revoke_cancels_a_dead_letter_write() -> None:
    async with running_lane() as harness:
        begun = asyncio.Event()

        async def hang(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        harness.lane._executor._write, write = hang, harness.lane._executor._write
        harness.jobs.script[b"a"] = [Permanent("422", reason=DeadLetterReason.REJECTED)]
        harness.source.produce(b"a")
        await begun.wait()
        await harness.source.revoke()
        assert harness.source.committed == {}
        harness.lane._executor._write = write
        harness.source.assign(P0)
        await harness.source.listener.assigned()
        await harness.drain()
        assert harness.jobs.order[0, b"a"] == [0, 0]


async def test_the_first_assignment_reports_no_revoke() -> None:
    async with running_lane() as harness:
        assert kinds(harness) == [(RebalanceKind.ASSIGNED, True)]


async def test_a_poll_that_raises_loses_nothing() -> None:
    async with running_lane(P0, P1) as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        for _ in range(3):
            harness.source.failures.append(OSError("a corrupt batch"))
            for n in range(4):
                harness.source.produce(f"{n}".encode(), partition=P0)
                harness.source.produce(f"{n}".encode(), partition=P1)
            await eventually(lambda: not harness.source.failures)
        await harness.drain()
        assert all(harness.jobs.order[p, f"{n}".encode()] for p in (0, 1) for n in range(4))
        assert sum(len(offsets) for offsets in harness.jobs.order.values()) == 25
        assert {failed.error for failed in harness.events_of(PollFailed)} == {"OSError: a corrupt batch"}


async def test_a_poll_that_raises_before_anything_was_read_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "TICK", 3_600.0)  # else it would know where the partition begins
    async with running_lane(joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        harness.source.failures.append(OSError())
        harness.source.produce(b"a")
        await harness.source.rebalance(P0)
        await eventually(lambda: harness.jobs.order[0, b"a"] == [0])


async def test_a_rewind_is_retried_until_it_works_and_nothing_is_committed_meanwhile() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)
        position, tries = harness.source.position, 0

        async def fail(partition: Partition) -> int:
            nonlocal tries
            tries += 1
            raise OSError("no broker")

        harness.source.position = fail  # type: ignore[method-assign]
        harness.source.failures.append(OSError())
        harness.source.produce(b"b")
        await eventually(lambda: tries > 3)
        assert harness.source.committed == {P0: 1}
        assert "no position of comments[0]" in harness.events_of(PollFailed)[-1].error
        harness.source.position = position  # type: ignore[method-assign]
        await harness.drain()
        assert harness.jobs.order[0, b"b"] == [1]


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_partition_without_a_leader_keeps_no_other_from_being_read(hangs: bool) -> None:
    """Its position cannot be corrected after a failed poll; the others must go on, and it is read once it is back."""
    async with running_lane(P0, P1) as harness:
        back, position = asyncio.Event(), harness.source.position

        async def ask_leader(partition: Partition) -> None:
            if partition == P1 and not back.is_set():
                if not hangs:
                    raise OSError("no leader")
                await asyncio.Event().wait()

        async def position_at_leader(partition: Partition) -> int:
            await ask_leader(partition)
            return await position(partition)

        harness.source.position = position_at_leader  # type: ignore[method-assign]
        harness.source.on_start_of = ask_leader
        harness.source.failures.append(OSError())
        harness.source.produce(b"lost", partition=P0)
        harness.source.produce(b"lost", partition=P1)
        await eventually(lambda: harness.jobs.order[0, b"lost"] == [0])
        harness.source.produce(b"next", partition=P0)
        harness.source.produce(b"next", partition=P1)
        await eventually(lambda: harness.source.committed.get(P0) == 2)
        assert harness.jobs.order[1, b"next"] == []
        back.set()
        await harness.drain()
        assert harness.jobs.order[1, b"lost"] == [0]
        assert harness.jobs.order[1, b"next"] == [1]


async def test_a_partition_that_is_located_during_a_rewind_is_rewound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick locates the partition while the rewind waits for another partition's position."""
    monkeypatch.setattr(lane, "TICK", 3_600.0)
    async with running_lane(P0, P1, joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0, P1)
        harness.scheduler.locate(P0, 0)
        waiting, go, position = asyncio.Event(), asyncio.Event(), harness.source.position

        async def slowly(partition: Partition) -> int:
            waiting.set()
            await go.wait()
            return await position(partition)

        async def slow_start(_partition: Partition) -> None:
            await go.wait()

        harness.source.position = slowly  # type: ignore[method-assign]
        harness.source.on_start_of = slow_start
        harness.source.failures.append(OSError())
        harness.source.produce(b"a", partition=P1)
        await waiting.wait()
        harness.scheduler.locate(P1, 0)
        harness.source.position = position  # type: ignore[method-assign]
        go.set()
        await eventually(lambda: harness.jobs.order[1, b"a"] == [0])


async def test_a_poll_that_raises_before_the_assignment_is_known_loses_nothing() -> None:
    async with running_lane(joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        await harness.source.revoke()
        harness.source.failures.append(OSError())
        harness.source.produce(b"a")
        harness.source.assign(P0)
        await eventually(lambda: harness.events_of(PollFailed))
        await harness.source.listener.assigned()
        await eventually(lambda: harness.jobs.order[0, b"a"] == [0])


async def test_a_rewind_interrupted_by_a_rebalance_does_not_seek_the_new_assignment() -> None:
    """The old tracker's position would skip what another member had committed less of."""
    async with running_lane(limit=1) as harness:
        harness.jobs.gate.clear()
        for n in range(5):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.source.delivered) == 5)
        looked, go = asyncio.Event(), asyncio.Event()
        position = harness.source.position

        async def slowly(partition: object) -> int:
            looked.set()
            await go.wait()
            return -1

        harness.source.position = slowly  # type: ignore[method-assign]
        harness.source.failures.append(OSError())
        harness.source.produce(b"new")
        await looked.wait()
        await harness.source.revoke()
        harness.source.position = position  # type: ignore[method-assign]
        harness.source.assign(P0)
        go.set()
        await harness.source.listener.assigned()
        harness.jobs.gate.set()
        await harness.drain()
        assert harness.jobs.order[0, b"0"] == [0, 0]
        assert [harness.jobs.order[0, key] for key in (b"1", b"2", b"3", b"4", b"new")] == [[1], [2], [3], [4], [5]]


async def test_a_truncated_log_is_read_from_its_new_start_and_other_partitions_lose_nothing() -> None:
    async with running_lane(P0, P1) as harness:
        for n in range(5):
            harness.source.produce(f"old{n}".encode())
        await harness.drain()
        harness.jobs.gate.clear()
        harness.source.produce(b"slow", partition=P1)
        harness.source.produce(b"slow", partition=P1)
        await eventually(lambda: harness.jobs.running)
        harness.source.truncate()
        for n in range(3):
            harness.source.produce(f"new{n}".encode())
        await eventually(lambda: harness.events_of(PollFailed))
        harness.jobs.gate.set()
        await eventually(lambda: harness.source.committed == {P0: 3, P1: 2})
        assert (
            "comments[0]: the log was truncated from 5 to 3: reading again from 0"
            in harness.events_of(PollFailed)[0].error
        )
        assert [harness.jobs.order[0, f"new{n}".encode()] for n in range(3)] == [[0], [1], [2]]
        assert harness.jobs.order[1, b"slow"] == [0, 0, 1]
        assert not harness.jobs.broken


async def test_a_whole_log_is_not_read_again_when_the_consumer_goes_back_to_its_start() -> None:
    async with running_lane(P0, P1) as harness:
        for n in range(5):
            harness.source.produce(f"old{n}".encode())
        await harness.drain()
        epoch = harness.scheduler.epoch
        harness.source.go_back()
        harness.source.produce(b"new")
        await harness.drain()
        assert harness.scheduler.epoch == epoch
        assert harness.jobs.started == 6
        [failure] = harness.events_of(PollFailed)
        assert failure.error == "comments[0]: the consumer went back from 5 to 0: reading on from 5"


async def test_a_truncation_that_a_rebalance_interrupts_resets_nothing() -> None:
    async with running_lane() as harness:
        for n in range(5):
            harness.source.produce(f"old{n}".encode())
        await harness.drain()
        asked, go = asyncio.Event(), asyncio.Event()

        async def end_of(partition: Partition) -> int:
            asked.set()
            await go.wait()
            return 1

        harness.source.end_of = end_of  # type: ignore[method-assign]
        harness.source.go_back()
        harness.source.produce(b"new")
        await asked.wait()
        await harness.source.rebalance(P0)
        epoch = harness.scheduler.epoch
        go.set()
        await harness.drain()
        assert harness.scheduler.epoch == epoch
        assert harness.events_of(PollFailed) == []
        assert harness.jobs.started == 6


async def test_a_log_truncated_before_its_first_read_is_read_from_its_new_start() -> None:
    async with running_lane(joined=False) as harness:
        harness.source.committed = {P0: 50}
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0)
        await eventually(lambda: harness.scheduler.trackers)
        assert harness.scheduler.trackers[P0].position == 50
        harness.source.truncate()
        harness.source.produce(b"a")
        await eventually(lambda: harness.source.committed == {P0: 1})
