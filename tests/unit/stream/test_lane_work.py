"""A lane at work: order, the in-flight limit, retries, back-pressure, and what it says of itself."""

import asyncio

import pytest

from consumer.errors import DeadLetterReason, NotYet, Permanent, Transient, Upstream
from consumer.handlers.results import Done, FailReason, Skipped, SkipReason
from consumer.stream import lane
from consumer.stream.pressure import Limits
from consumer.stream.records import Partition
from consumer.stream.signals import Ending, ParkReason, PollFailed, Rebalanced
from tests.unit.stream.harness import POISON, lane_on, until
from tests.unit.stream.samples import P0, P1


async def test_a_key_runs_in_order_and_keys_run_beside_each_other() -> None:
    async with lane_on(P0, P1, limit=8) as rig:
        rig.work.gate.clear()
        for _ in range(20):
            for key in (b"a", b"b", None):
                for partition in (P0, P1):
                    rig.source.produce(key, partition=partition)
        await until(lambda: len(rig.work.running) == 8)
        rig.work.gate.set()
        await rig.drained()
        for keyed in ((0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")):
            assert rig.work.order[keyed] == sorted(rig.work.order[keyed])
            assert len(rig.work.order[keyed]) == 20
        assert not rig.work.broken
        assert rig.work.most == 8


async def test_no_more_than_the_limit_is_in_flight() -> None:
    async with lane_on(limit=3) as rig:
        rig.work.gate.clear()
        for n in range(10):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.source.delivered) == 10 and len(rig.work.running) == 3)
        assert (rig.lane.state().in_flight, rig.lane.state().buffered) == (3, 7)
        rig.work.gate.set()
        await rig.drained()
        assert rig.work.most == 3


async def test_a_failure_waits_for_its_time_and_holds_up_only_its_key() -> None:
    async with lane_on() as rig:
        rig.work.script[b"a"] = [POISON]
        rig.source.produce(b"a")
        await until(lambda: rig.ended(Ending.RETRIED))
        rig.source.produce(b"a")
        rig.source.produce(b"b")
        await until(lambda: rig.ended(Ending.SUCCEEDED))
        assert rig.work.order[0, b"b"] == [2]
        assert rig.work.order[0, b"a"] == [0]
        assert rig.lane.state().parked[ParkReason.RETRY] == 1
        await rig.drained()
        assert rig.work.order[0, b"a"] == [0, 0, 1]


async def test_a_wait_ends_at_its_time_and_not_at_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lane_on() as rig:
        monkeypatch.setattr(lane, "POLL_TIMEOUT", 3_600.0)
        loop = asyncio.get_running_loop()
        rig.lane._work._clock = loop.time
        rig.work.script[b"a"] = [Transient("503", upstream=Upstream.HINDSIGHT, retry_after=0.05)]
        rig.source.produce(b"other")
        await until(lambda: rig.work.order[0, b"other"])
        rig.source.produce(b"a")
        await until(lambda: rig.work.order[0, b"a"] == [1, 1])


async def test_a_handler_that_waits_for_something_spends_no_attempt() -> None:
    async with lane_on() as rig:
        rig.work.script[b"a"] = [NotYet("unfinished") for _ in range(5)]
        rig.source.produce(b"a")
        await until(lambda: rig.lane.state().parked[ParkReason.NOT_YET])
        await rig.drained()
        assert {ended.attempts for ended in rig.ended(Ending.RETRIED, Ending.SUCCEEDED)} == {0}
        assert rig.letters.taken == []


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError(), TimeoutError()])
async def test_whatever_a_handler_raises_is_tried_again(error: BaseException) -> None:
    async with lane_on() as rig:
        rig.work.script[b"a"] = [error]
        rig.source.produce(b"a")
        await rig.drained()
        assert [ended.attempts for ended in rig.ended(Ending.RETRIED)] == [1]
        assert rig.work.order[0, b"a"] == [0, 0]


async def test_each_ending_is_told() -> None:
    async with lane_on() as rig:
        rig.work.script = {
            b"skip": [Skipped(SkipReason.NO_AGENT)],
            b"fail": [Done(FailReason.HINDSIGHT)],
            b"dead": [Permanent("422", reason=DeadLetterReason.REJECTED)],
        }
        for key in (b"good", b"skip", b"fail", b"dead"):
            rig.source.produce(key, timestamp=999_990_000)
        rig.source.produce(b"other", b"ignored", timestamp=999_990_000)
        await until(lambda: rig.lag == 0)
        told = {str(ended.facts["offset"]): ended for ended in rig.ended(*Ending)}
        assert [(told[f"{n}"].ending, told[f"{n}"].reason, told[f"{n}"].handler) for n in range(5)] == [
            (Ending.SUCCEEDED, None, "retain"),
            (Ending.SKIPPED, SkipReason.NO_AGENT, "retain"),
            (Ending.FAILED, FailReason.HINDSIGHT, "retain"),
            (Ending.DEAD_LETTERED, DeadLetterReason.REJECTED, "retain"),
            (Ending.IGNORED, None, "ignored"),
        ]
        assert {ended.age for ended in told.values()} == {10.0}
        assert told["3"].facts == {"event_id": "event-3", "topic": "comments", "partition": 0, "offset": 3}
        assert told["3"].error == "422"
        assert told["0"].error == ""


async def test_a_full_partition_is_paused_once_and_resumed_at_half() -> None:
    async with lane_on(P0, P1, limit=1, limits=Limits(records=10)) as rig:
        rig.work.gate.clear()
        for n in range(30):
            rig.source.produce(f"{n}".encode())
        await until(lambda: rig.source.paused == {P0})
        assert rig.lane.state().paused == {"comments": 1}
        delivered = len(rig.source.delivered)
        for n in range(30):
            rig.source.produce(f"late{n}".encode())
        rig.source.produce(b"x", partition=P1)
        await until(lambda: len(rig.source.delivered) > delivered)
        assert {partition for partition, _ in rig.source.delivered[delivered:]} == {P1}
        rig.work.gate.set()
        await rig.drained()
        await until(lambda: rig.source.paused == set())
        assert rig.source.pauses <= 3, "not at every record"


async def test_a_stuck_key_does_not_let_the_uncommitted_span_grow_for_ever() -> None:
    async with lane_on(limit=2, limits=Limits(span=50)) as rig:
        rig.work.always[b"stuck"] = POISON
        rig.source.produce(b"stuck")
        for n in range(500):
            rig.source.produce(f"{n}".encode())
        await until(lambda: P0 in rig.source.paused)
        before = len(rig.source.delivered)
        polls = rig.source.polls
        await until(lambda: rig.source.polls > polls + 5)
        assert len(rig.source.delivered) == before, "polling goes on, and brings nothing"


async def test_its_state_says_how_it_stands() -> None:
    async with lane_on(P0, P1, joined=False) as rig:
        state = rig.lane.state()
        assert (state.joined, state.rebalancing, state.assigned) == (False, True, {})
        assert (state.oldest_uncommitted, state.oldest_in_flight, rig.lane.stuck_stack()) == (0.0, 0.0, "")
        await until(lambda: rig.source.polls)
        await rig.source.rebalance(P0, P1)
        rig.work.gate.clear()
        rig.source.produce(b"a", timestamp=int(rig.clock.now - 30) * 1000)
        await until(lambda: rig.work.running)
        rig.clock.now += 5
        await until(lambda: rig.lane.state().last_poll == rig.clock.now)
        state = rig.lane.state()
        assert (state.joined, state.rebalancing, state.assigned) == (True, False, {"comments": 2})
        assert (state.in_flight, state.oldest_uncommitted, state.oldest_in_flight) == (1, 35.0, 5.0)
        assert [line.split()[-1] for line in rig.lane.stuck_stack().splitlines()] == [
            "_work_on",
            "_work",
            "run",
            "_wait",
            "wait",
        ]
        rig.work.gate.set()
        await until(lambda: rig.lag == 0)
        assert rig.lane.state().last_commit == rig.clock.now


async def test_a_standby_has_joined() -> None:
    async with lane_on(joined=False) as rig:
        await until(lambda: rig.source.polls)
        await rig.source.rebalance()
        assert rig.lane.state().joined
        assert not rig.lane.state().rebalancing
        assert [told.partitions for told in rig.told(Rebalanced)] == [0]


async def test_a_kafka_that_is_not_there_yet_is_tried_again() -> None:
    async with lane_on(joined=False) as rig:

        async def fail() -> None:
            rig.source.on_start = None
            raise OSError("no broker")

        rig.source.on_start = fail
        await until(lambda: rig.source.polls)
        assert [failed.error for failed in rig.told(PollFailed)] == ["Kafka is not reached yet: OSError: no broker"]
        await rig.source.rebalance(P0)
        rig.source.produce(b"a")
        await until(lambda: rig.lag == 0)


async def test_a_bug_of_the_engine_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lane_on() as rig:
        monkeypatch.setattr(rig.core, "finish", lambda *_: 1 / 0)
        rig.source.produce(b"a")
        with pytest.raises(ZeroDivisionError):
            await rig.running


async def test_a_partition_of_the_fake_is_a_partition() -> None:
    """The fake holds the engine to what aiokafka would raise."""
    async with lane_on() as rig:
        with pytest.raises(AssertionError):
            await rig.source.commit({Partition("comments", 7): 1})
        with pytest.raises(AssertionError):
            rig.source.seek(P1, 0)
