"""A lane at work: order, the in-flight limit, retries, back-load, and what it says of itself."""

import asyncio

import pytest

from consumer.errors import DeadLetterReason, NotYet, Permanent, Transient, Upstream
from consumer.handlers.results import Degraded, Skipped, SkipReason
from consumer.stream import lane
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.hooks import AttemptOutcome, ParkReason, PollFailed, Rebalanced
from consumer.stream.records import Partition
from tests.unit.stream.harness import POISON, eventually, running_lane
from tests.unit.stream.samples import P0, P1


async def test_a_key_runs_in_order_and_keys_run_beside_each_other() -> None:
    async with running_lane(P0, P1, limit=8) as harness:
        harness.jobs.gate.clear()
        for _ in range(20):
            for key in (b"a", b"b", None):
                for partition in (P0, P1):
                    harness.source.produce(key, partition=partition)
        await eventually(lambda: len(harness.jobs.running) == 8)
        harness.jobs.gate.set()
        await harness.drain()
        for keyed in ((0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")):
            assert harness.jobs.order[keyed] == sorted(harness.jobs.order[keyed])
            assert len(harness.jobs.order[keyed]) == 20
        assert not harness.jobs.broken
        assert harness.jobs.most == 8


async def test_no_more_than_the_limit_is_in_flight() -> None:
    async with running_lane(limit=3) as harness:
        harness.jobs.gate.clear()
        for n in range(10):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.source.delivered) == 10 and len(harness.jobs.running) == 3)
        assert (harness.lane.state().in_flight, harness.lane.state().buffered) == (3, 7)
        harness.jobs.gate.set()
        await harness.drain()
        assert harness.jobs.most == 3


async def test_a_failure_waits_for_its_time_and_holds_up_only_its_key() -> None:
    async with running_lane() as harness:
        harness.jobs.script[b"a"] = [POISON]
        harness.source.produce(b"a")
        await eventually(lambda: harness.attempts(AttemptOutcome.RETRIED))
        harness.source.produce(b"a")
        harness.source.produce(b"b")
        await eventually(lambda: harness.attempts(AttemptOutcome.SUCCEEDED))
        assert harness.jobs.order[0, b"b"] == [2]
        assert harness.jobs.order[0, b"a"] == [0]
        assert harness.lane.state().parked[ParkReason.RETRY] == 1
        await harness.drain()
        assert harness.jobs.order[0, b"a"] == [0, 0, 1]


async def test_a_wait_ends_at_its_time_and_not_at_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_lane() as harness:
        monkeypatch.setattr(lane, "POLL_TIMEOUT", 3_600.0)
        loop = asyncio.get_running_loop()
        harness.lane._executor._clock = loop.time
        harness.jobs.script[b"a"] = [Transient("503", upstream=Upstream.HINDSIGHT, retry_after=0.05)]
        harness.source.produce(b"other")
        await eventually(lambda: harness.jobs.order[0, b"other"])
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.order[0, b"a"] == [1, 1])


async def test_a_handler_that_waits_for_something_spends_no_attempt() -> None:
    async with running_lane() as harness:
        harness.jobs.script[b"a"] = [NotYet("unfinished") for _ in range(5)]
        harness.source.produce(b"a")
        await eventually(lambda: harness.lane.state().parked[ParkReason.NOT_YET])
        await harness.drain()
        assert {ended.attempts for ended in harness.attempts(AttemptOutcome.RETRIED, AttemptOutcome.SUCCEEDED)} == {0}
        assert harness.dead_letters.written == []


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError(), TimeoutError()])
async def test_whatever_a_handler_raises_is_tried_again(error: BaseException) -> None:
    async with running_lane() as harness:
        harness.jobs.script[b"a"] = [error]
        harness.source.produce(b"a")
        await harness.drain()
        assert [ended.attempts for ended in harness.attempts(AttemptOutcome.RETRIED)] == [1]
        assert harness.jobs.order[0, b"a"] == [0, 0]


async def test_each_ending_is_told() -> None:
    async with running_lane() as harness:
        harness.jobs.script = {
            b"skip": [Skipped(SkipReason.NO_AGENT)],
            b"fail": [Degraded(Upstream.HINDSIGHT)],
            b"dead": [Permanent("422", reason=DeadLetterReason.REJECTED)],
        }
        for key in (b"good", b"skip", b"fail", b"dead"):
            harness.source.produce(key, timestamp=999_990_000)
        harness.source.produce(b"other", b"ignored", timestamp=999_990_000)
        await eventually(lambda: harness.lag == 0)
        told = {str(ended.facts["offset"]): ended for ended in harness.attempts(*AttemptOutcome)}
        assert [(told[f"{n}"].outcome, told[f"{n}"].reason, told[f"{n}"].handler) for n in range(5)] == [
            (AttemptOutcome.SUCCEEDED, None, "retain"),
            (AttemptOutcome.SKIPPED, SkipReason.NO_AGENT, "retain"),
            (AttemptOutcome.FAILED, Upstream.HINDSIGHT, "retain"),
            (AttemptOutcome.DEAD_LETTERED, DeadLetterReason.REJECTED, "retain"),
            (AttemptOutcome.IGNORED, None, "ignored"),
        ]
        assert {ended.age for ended in told.values()} == {10.0}
        assert told["3"].facts == {"event_id": "event-3", "topic": "comments", "partition": 0, "offset": 3}
        assert told["3"].error == "422"
        assert told["0"].error == ""


async def test_a_full_partition_is_paused_once_and_resumed_at_half() -> None:
    async with running_lane(P0, P1, limit=1, limits=BackpressureLimits(records=10)) as harness:
        harness.jobs.gate.clear()
        for n in range(30):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: harness.source.paused == {P0})
        assert harness.lane.state().paused == {"comments": 1}
        delivered = len(harness.source.delivered)
        for n in range(30):
            harness.source.produce(f"late{n}".encode())
        harness.source.produce(b"x", partition=P1)
        await eventually(lambda: len(harness.source.delivered) > delivered)
        assert {partition for partition, _ in harness.source.delivered[delivered:]} == {P1}
        harness.jobs.gate.set()
        await harness.drain()
        await eventually(lambda: harness.source.paused == set())
        assert harness.source.pauses <= 3, "not at every record"


async def test_a_stuck_key_does_not_let_the_uncommitted_span_grow_for_ever() -> None:
    async with running_lane(limit=2, limits=BackpressureLimits(pending=50)) as harness:
        harness.jobs.always[b"stuck"] = POISON
        harness.source.produce(b"stuck")
        for n in range(500):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: P0 in harness.source.paused)
        before = len(harness.source.delivered)
        polls = harness.source.polls
        await eventually(lambda: harness.source.polls > polls + 5)
        assert len(harness.source.delivered) == before, "polling goes on, and brings nothing"


async def test_its_state_says_how_it_stands() -> None:
    async with running_lane(P0, P1, joined=False) as harness:
        state = harness.lane.state()
        assert (state.joined, state.rebalancing, state.assigned) == (False, True, {})
        assert (state.oldest_uncommitted, state.oldest_in_flight, harness.lane.longest_stack()) == (0.0, 0.0, "")
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance(P0, P1)
        harness.jobs.gate.clear()
        harness.source.produce(b"a", timestamp=int(harness.clock.now - 30) * 1000)
        await eventually(lambda: harness.jobs.running)
        harness.clock.now += 5
        await eventually(lambda: harness.lane.state().last_poll == harness.clock.now)
        state = harness.lane.state()
        assert (state.joined, state.rebalancing, state.assigned) == (True, False, {"comments": 2})
        assert (state.in_flight, state.oldest_uncommitted, state.oldest_in_flight) == (1, 35.0, 5.0)
        assert [line.split()[-1] for line in harness.lane.longest_stack().splitlines()] == [
            "_run_items",
            "_process",
            "run",
            "_wait",
            "wait",
        ]
        harness.jobs.gate.set()
        await eventually(lambda: harness.lag == 0)
        assert harness.lane.state().last_commit == harness.clock.now


async def test_a_standby_has_joined() -> None:
    async with running_lane(joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance()
        assert harness.lane.state().joined
        assert not harness.lane.state().rebalancing
        assert [told.partitions for told in harness.events_of(Rebalanced)] == [0]


async def test_a_kafka_that_is_not_there_yet_is_tried_again() -> None:
    async with running_lane(joined=False) as harness:

        async def fail() -> None:
            harness.source.on_start = None
            raise OSError("no broker")

        harness.source.on_start = fail
        await eventually(lambda: harness.source.polls)
        assert [failed.error for failed in harness.events_of(PollFailed)] == [
            "Kafka is not reachable yet: OSError: no broker"
        ]
        await harness.source.rebalance(P0)
        harness.source.produce(b"a")
        await eventually(lambda: harness.lag == 0)


async def test_a_bug_of_the_engine_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_lane() as harness:
        monkeypatch.setattr(harness.scheduler, "finish", lambda *_: 1 / 0)
        harness.source.produce(b"a")
        with pytest.raises(ZeroDivisionError):
            await harness.running


async def test_a_partition_of_the_fake_is_a_partition() -> None:
    """The fake holds the engine to what aiokafka would raise."""
    async with running_lane() as harness:
        with pytest.raises(AssertionError):
            await harness.source.commit({Partition("comments", 7): 1})
        with pytest.raises(AssertionError):
            harness.source.seek(P1, 0)
