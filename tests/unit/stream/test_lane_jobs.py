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


async def test_records_of_a_key_run_in_order_and_keys_run_side_by_side() -> None:
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


async def test_a_failed_record_delays_only_its_own_key() -> None:
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


async def test_a_retry_starts_when_due_without_waiting_for_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_lane() as harness:
        monkeypatch.setattr(lane, "POLL_TIMEOUT", 3_600.0)
        loop = asyncio.get_running_loop()
        harness.lane._executor._clock = loop.time
        harness.jobs.script[b"a"] = [Transient("503", upstream=Upstream.HINDSIGHT, retry_after=0.05)]
        harness.source.produce(b"other")
        await eventually(lambda: harness.jobs.order[0, b"other"])
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.order[0, b"a"] == [1, 1])


async def test_not_yet_spends_no_attempt() -> None:
    async with running_lane() as harness:
        harness.jobs.script[b"a"] = [NotYet("unfinished") for _ in range(5)]
        harness.source.produce(b"a")
        await eventually(lambda: harness.lane.state().parked[ParkReason.NOT_YET])
        await harness.drain()
        assert {ended.attempts for ended in harness.attempts(AttemptOutcome.RETRIED, AttemptOutcome.SUCCEEDED)} == {0}
        assert harness.dead_letters.written == []


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError(), TimeoutError()])
async def test_a_foreign_exception_of_a_handler_is_retried(error: BaseException) -> None:
    async with running_lane() as harness:
        harness.jobs.script[b"a"] = [error]
        harness.source.produce(b"a")
        await harness.drain()
        assert [ended.attempts for ended in harness.attempts(AttemptOutcome.RETRIED)] == [1]
        assert harness.jobs.order[0, b"a"] == [0, 0]


async def test_each_outcome_is_reported() -> None:
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
        attempts = {str(attempt.facts["offset"]): attempt for attempt in harness.attempts(*AttemptOutcome)}
        assert [(attempts[f"{n}"].outcome, attempts[f"{n}"].reason, attempts[f"{n}"].handler) for n in range(5)] == [
            (AttemptOutcome.SUCCEEDED, None, "retain"),
            (AttemptOutcome.SKIPPED, SkipReason.NO_AGENT, "retain"),
            (AttemptOutcome.FAILED, Upstream.HINDSIGHT, "retain"),
            (AttemptOutcome.DEAD_LETTERED, DeadLetterReason.REJECTED, "retain"),
            (AttemptOutcome.IGNORED, None, "ignored"),
        ]
        assert {attempt.age for attempt in attempts.values()} == {10.0}
        assert attempts["3"].facts == {"event_id": "event-3", "topic": "comments", "partition": 0, "offset": 3}
        assert attempts["3"].error == "422"
        assert attempts["0"].error == ""


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


async def test_a_thousand_waiting_deletions_do_not_pause_their_partition() -> None:
    async with running_lane(limit=8, limits=BackpressureLimits(records=100)) as harness:
        for n in range(1_000):
            harness.jobs.always[f"waiting{n}".encode()] = NotYet("unfinished")
            harness.source.produce(f"waiting{n}".encode())
        harness.source.produce(b"live", timestamp=int(harness.clock.now * 1000))
        await eventually(lambda: harness.jobs.order[0, b"live"])
        assert harness.lane.state().waiting == {P0: 0.0}
        harness.jobs.always.clear()
        await harness.drain()


async def test_a_stuck_key_pauses_its_partition_at_the_pending_limit() -> None:
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


async def test_the_state_of_a_lane() -> None:
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


async def test_a_member_without_partitions_counts_as_joined() -> None:
    async with running_lane(joined=False) as harness:
        await eventually(lambda: harness.source.polls)
        await harness.source.rebalance()
        assert harness.lane.state().joined
        assert not harness.lane.state().rebalancing
        assert [event.partitions for event in harness.events_of(Rebalanced)] == [0]


async def test_joining_is_retried_while_kafka_is_unreachable() -> None:
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


async def test_an_error_in_the_timer_of_a_retry_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop would only log it, and the lane would start nothing more. The poll may last."""
    monkeypatch.setattr(lane, "POLL_TIMEOUT", 3_600.0)
    async with running_lane() as harness:
        harness.lane._executor._clock = asyncio.get_running_loop().time
        harness.jobs.script[b"a"] = [Transient("503", upstream=Upstream.HINDSIGHT, retry_after=0.01)]
        harness.source.produce(b"a")
        await eventually(lambda: harness.attempts(AttemptOutcome.RETRIED))
        monkeypatch.setattr(harness.scheduler, "start", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await harness.running


async def test_an_error_after_the_end_of_a_job_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "POLL_TIMEOUT", 3_600.0)
    async with running_lane() as harness:
        harness.jobs.gate.clear()
        harness.jobs.script[b"a"] = [Skipped(SkipReason.NO_AGENT)]
        harness.source.produce(b"a")
        await eventually(lambda: harness.jobs.running)
        monkeypatch.setattr(harness.scheduler, "start", lambda *_: 1 / 0)
        harness.jobs.gate.set()
        with pytest.raises(ZeroDivisionError):
            await harness.running


async def test_a_bug_of_the_engine_ends_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_lane() as harness:
        monkeypatch.setattr(harness.scheduler, "finish", lambda *_: 1 / 0)
        harness.source.produce(b"a")
        with pytest.raises(ZeroDivisionError):
            await harness.running


async def test_the_fake_source_rejects_partitions_that_are_not_assigned() -> None:
    """The fake holds the engine to what aiokafka would raise."""
    async with running_lane() as harness:
        with pytest.raises(AssertionError):
            await harness.source.commit({Partition("comments", 7): 1})
        with pytest.raises(AssertionError):
            harness.source.seek(P1, 0)
