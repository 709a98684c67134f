"""A lane whose partitions come and go."""

import asyncio
import contextlib

import pytest

from consumer.errors import DeadLetterReason, Permanent
from consumer.stream import lane
from consumer.stream.pressure import Limits
from consumer.stream.signals import CommitEnded, CommitResult, Ending, PollFailed, Rebalanced, RebalanceKind
from tests.unit.stream.harness import Rig, lane_on, until
from tests.unit.stream.samples import P0, P1


def kinds(rig: Rig) -> list[tuple[RebalanceKind, bool]]:
    return [(told.kind, told.drained) for told in rig.told(Rebalanced)]


async def test_a_revoke_lets_what_is_in_flight_end_and_commits_it() -> None:
    async with lane_on(drain_timeout=30.0) as rig:
        rig.work.gate.clear()
        rig.source.produce(b"a")
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        revoking = asyncio.create_task(rig.source.revoke())
        await until(lambda: rig.lane.state().rebalancing)
        rig.work.gate.set()
        await revoking
        assert rig.source.committed == {P0: 1}
        assert rig.work.order[0, b"a"] == [0], "nothing new is started"
        assert kinds(rig)[-1] == (RebalanceKind.REVOKED, True)
        assert rig.lane.state().assigned == {}


async def test_a_revoke_with_64_slow_jobs_ends_at_its_deadline_without_them() -> None:
    async with lane_on(limit=64) as rig:
        rig.source.produce(b"done")
        await until(lambda: rig.ended(Ending.SUCCEEDED))
        rig.work.gate.clear()
        for n in range(64):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.work.running) == 64)
        await rig.source.revoke()
        assert rig.work.cancelled == 64
        assert rig.work.running == []
        assert rig.source.committed == {P0: 1}
        assert kinds(rig)[-1] == (RebalanceKind.REVOKED, False)
        rig.work.gate.set()
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        await rig.drained()
        assert sum(len(offsets) for offsets in rig.work.order.values()) == 1 + 64 * 2
        assert rig.work.order[0, b"done"] == [0], "only what lies above the committed offset is repeated"


async def test_jobs_that_will_not_be_cancelled_are_left_behind_and_their_results_dropped() -> None:
    async with lane_on(P0, P1, joined=False) as rig:
        await until(lambda: rig.source.polls)
        await rig.source.rebalance(P0)
        rig.work.stubborn = True
        rig.work.gate.clear()
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        await rig.source.revoke()
        assert rig.work.running
        rig.source.assign(P1)
        await rig.source.listener.assigned()
        rig.work.gate.set()
        await until(lambda: not rig.work.running)
        rig.source.produce(b"b", partition=P1)
        await until(lambda: rig.source.committed == {P1: 1})
        assert {told.facts["partition"] for told in rig.ended(Ending.SUCCEEDED)} == {1}


async def test_an_eviction_skips_the_drain_and_commits_nothing() -> None:
    async with lane_on(drain_timeout=3_600.0) as rig:
        rig.work.gate.clear()
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        await rig.source.revoke(evicted=True)
        assert rig.work.cancelled == 1
        assert rig.source.commits == []
        assert kinds(rig)[-1] == (RebalanceKind.LOST, False)
        rig.work.gate.set()
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        await rig.drained()


async def test_records_that_come_before_the_listener_is_called_belong_to_the_new_assignment() -> None:
    async with lane_on(P0, P1) as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        await rig.source.revoke()
        rig.source.assign(P0, P1)
        rig.source.produce(b"early", partition=P1)
        await until(lambda: rig.work.order[1, b"early"])
        epoch = rig.core.epoch
        await rig.source.listener.assigned()
        assert rig.core.epoch == epoch
        await rig.drained()
        assert rig.work.order[1, b"early"] == [0]


async def test_pauses_do_not_outlive_their_assignment_nor_does_the_next_one_miss_them() -> None:
    async with lane_on(limit=1, limits=Limits(records=5)) as rig:
        rig.work.gate.clear()
        for n in range(20):
            rig.source.produce(f"{n}".encode())
        await until(lambda: rig.source.paused == {P0})
        await rig.source.rebalance(P0)
        await until(lambda: rig.source.paused == {P0})
        rig.work.gate.set()
        await rig.drained()


async def test_what_is_done_but_not_committed_is_not_done_again() -> None:
    async with lane_on(limit=4) as rig:
        rig.work.gate.clear()
        rig.source.produce(b"slow")
        await until(lambda: rig.work.running)
        gate, rig.work.gate = rig.work.gate, asyncio.Event()
        rig.work.gate.set()
        for n in range(5):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.ended(Ending.SUCCEEDED)) == 5)
        for _ in range(3):
            await rig.source.rebalance(P0)
        gate.set()
        await rig.drained()
        assert rig.work.order[0, b"slow"] == [0, 0]
        assert all(len(rig.work.order[0, f"{n}".encode()]) == 1 for n in range(5))


async def test_a_commit_that_a_revoke_cuts_short_is_unknown_and_does_not_go_on() -> None:
    async with lane_on() as rig:
        begun, cut = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.set()
                rig.source.on_commit = None
                raise

        rig.source.on_commit = hang
        rig.source.produce(b"a")
        await begun.wait()
        await rig.source.revoke()
        assert cut.is_set()
        assert rig.source.commits == [{P0: 1}], "the revoke's own"
        results = [ended.result for ended in rig.told(CommitEnded)]
        assert results == [CommitResult.UNKNOWN, CommitResult.COMMITTED]


async def test_a_revoke_whose_commit_hangs_ends_all_the_same() -> None:
    async with lane_on() as rig:
        rig.work.gate.clear()
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        rig.source.on_commit = asyncio.Event().wait  # type: ignore[assignment]
        revoking = asyncio.create_task(rig.source.revoke())
        rig.work.gate.set()
        await revoking
        assert [ended.result for ended in rig.told(CommitEnded)][-1] is CommitResult.UNKNOWN
        assert rig.source.committed == {}
        rig.source.on_commit = None


async def test_a_revoke_that_cannot_commit_still_purges() -> None:
    """A `CancelledError` from inside the client must not leave the old assignment in place."""
    async with lane_on() as rig:

        async def cancelled() -> None:
            raise asyncio.CancelledError

        rig.work.gate.clear()
        rig.source.produce(b"a")
        await until(lambda: rig.work.running)
        rig.source.on_commit = cancelled
        revoking = asyncio.create_task(rig.source.revoke())
        rig.work.gate.set()
        await asyncio.gather(revoking, return_exceptions=True)
        rig.source.on_commit = None
        assert rig.lane.state().assigned == {}
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        await rig.drained()


@pytest.mark.parametrize("taken", [True, False])
async def test_what_becomes_of_a_dead_letter_after_its_partition_has_gone_is_nobodys_business(taken: bool) -> None:
    async with lane_on() as rig:
        begun, go = asyncio.Event(), asyncio.Event()

        async def stubborn(*_: object) -> None:
            begun.set()
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()
            if not taken:
                raise OSError

        rig.lane._work._write = stubborn
        rig.work.script[b"a"] = [Permanent("422", reason=DeadLetterReason.REJECTED)]
        rig.source.produce(b"a")
        await begun.wait()
        await rig.source.revoke()
        go.set()
        await until(lambda: not rig.lane._work.tasks)
        assert rig.ended(*Ending) == []
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        await rig.drained()
        assert rig.work.order[0, b"a"] == [0, 0]


async def test_a_dead_letter_that_is_being_written_is_cut_short_by_a_revoke() -> None:
    async with lane_on() as rig:
        begun = asyncio.Event()

        async def hang(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        rig.lane._work._write, write = hang, rig.lane._work._write
        rig.work.script[b"a"] = [Permanent("422", reason=DeadLetterReason.REJECTED)]
        rig.source.produce(b"a")
        await begun.wait()
        await rig.source.revoke()
        assert rig.source.committed == {}
        rig.lane._work._write = write
        rig.source.assign(P0)
        await rig.source.listener.assigned()
        await rig.drained()
        assert rig.work.order[0, b"a"] == [0, 0]


async def test_the_first_assignment_of_all_is_told_after_an_empty_revoke() -> None:
    async with lane_on() as rig:
        assert kinds(rig) == [(RebalanceKind.ASSIGNED, True)]


async def test_a_poll_that_raises_loses_nothing() -> None:
    async with lane_on(P0, P1) as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        for _ in range(3):
            rig.source.failures.append(OSError("a corrupt batch"))
            for n in range(4):
                rig.source.produce(f"{n}".encode(), partition=P0)
                rig.source.produce(f"{n}".encode(), partition=P1)
            await until(lambda: not rig.source.failures)
        await rig.drained()
        assert all(rig.work.order[p, f"{n}".encode()] for p in (0, 1) for n in range(4))
        assert sum(len(offsets) for offsets in rig.work.order.values()) == 25
        assert {failed.error for failed in rig.told(PollFailed)} == {"OSError: a corrupt batch"}


async def test_a_poll_that_raises_before_anything_was_read_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "TICK", 3_600.0)  # else it would know where the partition begins
    async with lane_on(joined=False) as rig:
        await until(lambda: rig.source.polls)
        rig.source.failures.append(OSError())
        rig.source.produce(b"a")
        await rig.source.rebalance(P0)
        await until(lambda: rig.work.order[0, b"a"] == [0])


async def test_going_back_is_tried_until_it_works_and_nothing_is_committed_meanwhile() -> None:
    async with lane_on(P0, P1) as rig:
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)
        tries = 0

        async def fail() -> None:
            nonlocal tries
            tries += 1
            raise OSError("no broker")

        rig.source.on_seek_to_committed = fail
        rig.source.failures.append(OSError())
        rig.source.produce(b"b")
        await until(lambda: tries > 3)
        assert rig.source.committed == {P0: 1}
        rig.source.on_seek_to_committed = None
        await rig.drained()
        assert rig.work.order[0, b"b"] == [1]


async def test_going_back_over_a_rebalance_leaves_the_new_positions_alone() -> None:
    """The old tracker's position would skip what another member had committed less of."""
    async with lane_on(limit=1) as rig:
        rig.work.gate.clear()
        for n in range(5):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.source.delivered) == 5)
        looked, go = asyncio.Event(), asyncio.Event()
        position = rig.source.position

        async def slowly(partition: object) -> int:
            looked.set()
            await go.wait()
            return -1

        rig.source.position = slowly  # type: ignore[method-assign]
        rig.source.failures.append(OSError())
        rig.source.produce(b"new")
        await looked.wait()
        await rig.source.revoke()
        rig.source.position = position  # type: ignore[method-assign]
        rig.source.assign(P0)
        go.set()
        await rig.source.listener.assigned()
        rig.work.gate.set()
        await rig.drained()
        assert rig.work.order[0, b"0"] == [0, 0]
        assert [rig.work.order[0, key] for key in (b"1", b"2", b"3", b"4", b"new")] == [[1], [2], [3], [4], [5]]


async def test_a_log_that_was_cut_off_is_read_anew_and_the_other_partitions_lose_nothing() -> None:
    async with lane_on(P0, P1) as rig:
        for n in range(5):
            rig.source.produce(f"old{n}".encode())
        await rig.drained()
        rig.work.gate.clear()
        rig.source.produce(b"slow", partition=P1)
        rig.source.produce(b"slow", partition=P1)
        await until(lambda: rig.work.running)
        rig.source.cut_off()
        for n in range(3):
            rig.source.produce(f"new{n}".encode())
        await until(lambda: rig.told(PollFailed))
        rig.work.gate.set()
        await until(lambda: rig.source.committed == {P0: 3, P1: 2})
        assert "was cut off: it is read from 0 again" in rig.told(PollFailed)[0].error
        assert [rig.work.order[0, f"new{n}".encode()] for n in range(3)] == [[0], [1], [2]]
        assert rig.work.order[1, b"slow"] == [0, 0, 1]
        assert not rig.work.broken


async def test_a_log_that_was_cut_off_before_it_was_read_is_read_too() -> None:
    async with lane_on(joined=False) as rig:
        rig.source.committed = {P0: 50}
        await until(lambda: rig.source.polls)
        await rig.source.rebalance(P0)
        await until(lambda: rig.core.trackers)
        assert rig.core.trackers[P0].position == 50
        rig.source.cut_off()
        rig.source.produce(b"a")
        await until(lambda: rig.source.committed == {P0: 1})
