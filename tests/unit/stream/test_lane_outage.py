"""A lane whose upstream, or whose dead-letter topic, is not well."""

import asyncio
import time

import pytest

from consumer.errors import DeadLetterReason, DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Skipped, SkipReason
from consumer.stream.hooks import AttemptOutcome, BreakerChanged, BreakerReason, ParkReason
from consumer.stream.lane import steady_clock
from consumer.stream.retry import RetryPolicy
from tests.unit.stream.harness import DOWN, POISON, eventually, running_lane
from tests.unit.stream.samples import P0

REJECTED = Permanent("422", reason=DeadLetterReason.REJECTED, upstream=Upstream.HINDSIGHT)
UNDECODABLE = Permanent("not JSON", reason=DeadLetterReason.UNDECODABLE)


async def test_an_outage_costs_no_attempts_and_probes_one_at_a_time() -> None:
    async with running_lane(limit=8) as harness:
        for n in range(20):
            harness.jobs.always[f"{n}".encode()] = DOWN
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: harness.events_of(BreakerChanged))
        assert harness.lane.state().breakers == {Upstream.HINDSIGHT: BreakerReason.UNREACHABLE}
        await eventually(lambda: not harness.jobs.running)
        harness.jobs.most = 0
        probed = harness.jobs.started
        await harness.advance_until(lambda: harness.jobs.started > probed + 40, seconds=2.0)
        assert harness.jobs.most == 1
        assert all(len(offsets) > 1 for offsets in harness.jobs.order.values()), "keys take turns as probes"
        harness.jobs.always.clear()
        await harness.drain()
        assert harness.dead_letters.written == []
        assert {ended.attempts for ended in harness.attempts(AttemptOutcome.SUCCEEDED)} == {0}
        assert [(moved.opened, moved.reason) for moved in harness.events_of(BreakerChanged)] == [
            (True, BreakerReason.UNREACHABLE),
            (False, BreakerReason.UNREACHABLE),
        ]


async def test_a_breaker_that_changes_its_reason_reports_a_close_and_an_open() -> None:
    async with running_lane(limit=1) as harness:
        harness.jobs.script[b"a"] = [DOWN, UpstreamDown("401", upstream=Upstream.HINDSIGHT, kind=DownKind.REFUSED)]
        harness.source.produce(b"a")
        await harness.drain()
        assert [(moved.opened, moved.reason) for moved in harness.events_of(BreakerChanged)] == [
            (True, BreakerReason.UNREACHABLE),
            (False, BreakerReason.UNREACHABLE),
            (True, BreakerReason.REFUSED),
            (False, BreakerReason.REFUSED),
        ]


async def test_polling_goes_on_while_a_breaker_is_open() -> None:
    async with running_lane() as harness:
        harness.jobs.always[b"a"] = DOWN
        harness.source.produce(b"a")
        await eventually(lambda: harness.lane.state().breakers)
        polls = harness.source.polls
        await eventually(lambda: harness.source.polls > polls + 3)


async def test_skips_pass_an_open_breaker_without_delay() -> None:
    async with running_lane(limit=1) as harness:
        harness.jobs.always[b"a"] = DOWN
        harness.source.produce(b"a")
        await eventually(lambda: harness.lane.state().breakers)
        for n in range(5):
            harness.jobs.script[f"{n}".encode()] = [Skipped(SkipReason.NO_AGENT)]
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.source.delivered) == 6)
        await harness.advance_until(lambda: harness.attempts(AttemptOutcome.SKIPPED), seconds=2.0)
        await eventually(lambda: len(harness.attempts(AttemptOutcome.SKIPPED)) == 5)
        assert harness.lane.state().breakers


@pytest.mark.parametrize("count", [1, 3])
async def test_poison_ends_as_dead_letters_and_the_other_keys_go_on(count: int) -> None:
    async with running_lane(limit=8, retry=RetryPolicy(max_attempts=4)) as harness:
        poisoned = [f"poison{n}".encode() for n in range(count)]
        for key in poisoned:
            harness.jobs.always[key] = POISON
            harness.source.produce(key)
        good = [f"good{n}".encode() for n in range(30)]
        for key in good:
            harness.source.produce(key)
        await harness.advance_until(lambda: all(harness.jobs.order[0, key] for key in good), seconds=1.0)
        await harness.drain()
        assert sorted(key or b"" for key, _, _ in harness.dead_letters.written) == sorted(poisoned)
        assert {headers["dead-letter-reason"] for _, _, headers in harness.dead_letters.written} == {
            b"attempts_exhausted"
        }
        assert {headers["dead-letter-attempts"] for _, _, headers in harness.dead_letters.written} == {b"4"}
        assert harness.lane.state().breakers == {}


async def test_a_poison_record_with_long_retries_delays_only_its_own_key() -> None:
    async with running_lane(limit=2) as harness:
        harness.jobs.always[b"poison"] = Transient("503", upstream=Upstream.HINDSIGHT, retry_after=300.0)
        harness.source.produce(b"poison")
        for n in range(50):
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: len(harness.attempts(AttemptOutcome.SUCCEEDED)) == 50)
        assert harness.source.committed == {}


@pytest.mark.parametrize("failure", [OSError("no broker"), asyncio.CancelledError(), DOWN])
async def test_a_record_is_parked_visibly_while_its_dead_letter_cannot_be_written(failure: BaseException) -> None:
    async with running_lane() as harness:
        harness.dead_letters.fails = failure
        harness.jobs.always[b"bad"] = UNDECODABLE
        harness.source.produce(b"bad", b"\xff")
        harness.source.produce(b"bad", b"\xfe")
        harness.source.produce(b"good")
        await harness.advance_until(lambda: harness.dead_letters.tries > 3)
        assert harness.lane.state().parked[ParkReason.DEAD_LETTER_UNAVAILABLE] == 1
        assert harness.source.committed == {}
        retried = harness.attempts(AttemptOutcome.RETRIED)
        assert {attempt.reason for attempt in retried} == {ParkReason.DEAD_LETTER_UNAVAILABLE}
        assert retried[-1].error.count("its dead letter") == 1
        assert "not JSON" in retried[-1].error
        harness.dead_letters.fails = None
        await harness.drain()
        assert [value for _, value, _ in harness.dead_letters.written] == [b"\xff", b"\xfe"]
        assert harness.jobs.order[0, b"good"] == [2]


async def test_a_handler_does_not_run_again_while_the_dead_letter_waits() -> None:
    async with running_lane() as harness:
        harness.dead_letters.fails = OSError()
        harness.jobs.script[b"a"] = [REJECTED]
        harness.source.produce(b"a")
        await harness.advance_until(lambda: harness.dead_letters.tries > 3)
        harness.dead_letters.fails = None
        await harness.drain()
        assert harness.jobs.order[0, b"a"] == [0]
        [dead_letter] = harness.dead_letters.written
        assert dead_letter[2]["dead-letter-event-id"] == b"event-0"


async def test_a_dead_letter_that_is_too_large_is_truncated() -> None:
    async with running_lane() as harness:
        harness.dead_letters.limit = 5
        harness.jobs.script[b"a"] = [REJECTED]
        harness.source.produce(b"a", b"0123456789")
        await eventually(lambda: harness.lag == 0)
        [(_, value, headers)] = harness.dead_letters.written
        assert value == b"01234"
        assert headers["dead-letter-truncated-from"] == b"10"


async def test_a_run_of_refusals_does_not_drain_the_topic_into_dead_letters() -> None:
    async with running_lane(limit=1) as harness:
        for n in range(40):
            harness.jobs.always[f"{n}".encode()] = REJECTED
            harness.source.produce(f"{n}".encode())
        await eventually(lambda: harness.lane.state().breakers == {Upstream.HINDSIGHT: BreakerReason.THROTTLED})
        assert len(harness.dead_letters.written) == 20
        polls = harness.source.polls
        await eventually(lambda: harness.source.polls > polls + 3)
        assert len(harness.dead_letters.written) == 20
        harness.clock.now += 2.0
        await eventually(lambda: len(harness.dead_letters.written) == 21)
        harness.jobs.always.clear()
        await harness.advance_until(lambda: harness.attempts(AttemptOutcome.SUCCEEDED), seconds=2.0)
        await eventually(lambda: harness.lag == 0)
        assert harness.events_of(BreakerChanged)[-1].opened is False


async def test_undecodable_records_do_not_throttle_the_lane() -> None:
    async with running_lane() as harness:
        harness.jobs.always[None] = UNDECODABLE
        for _ in range(60):
            harness.source.produce(None, None)
        await eventually(lambda: harness.lag == 0)
        assert len(harness.dead_letters.written) == 60
        assert harness.source.committed == {P0: 60}


async def test_setting_the_machines_time_back_does_not_stretch_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = steady_clock()
    before, wall = steady(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall - 3600.0)
    assert before <= steady() < before + 60.0
    async with running_lane() as harness:
        harness.jobs.always[b"a"] = DOWN
        harness.source.produce(b"a", timestamp=int(harness.clock.now * 1000))
        await eventually(lambda: harness.lane.state().breakers)
        harness.lane._wall = harness.lane._executor._wall = lambda: harness.clock.now - 3600.0
        harness.jobs.always.clear()
        await harness.advance_until(lambda: harness.attempts(AttemptOutcome.SUCCEEDED), seconds=1.0)
        assert harness.attempts(AttemptOutcome.SUCCEEDED)[0].age < -3000.0, "its age is by the machine's time"
        await eventually(lambda: harness.lane.state().last_poll < harness.clock.now - 3000.0)


async def test_an_unreadable_record_becomes_a_dead_letter_without_bytes_and_is_stepped_over() -> None:
    async with running_lane() as harness:
        harness.source.produce(b"before")
        harness.source.produce(None, None, unreadable="CorruptRecordException: Invalid CRC")
        harness.source.produce(b"after")
        await eventually(lambda: harness.lag == 0)
        [(key, value, headers)] = harness.dead_letters.written
        assert (key, value) == (None, b"")
        assert {
            name: headers[f"dead-letter-{name}"] for name in ("topic", "partition", "offset", "reason", "error")
        } == {
            "topic": b"comments",
            "partition": b"0",
            "offset": b"1",
            "reason": b"unreadable",
            "error": b"CorruptRecordException: Invalid CRC",
        }
        assert harness.jobs.started == 2
        assert harness.lane.state().breakers == {}
