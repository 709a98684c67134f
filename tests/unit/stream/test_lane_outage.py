"""A lane whose upstream, or whose dead-letter topic, is not well."""

import asyncio
import time

import pytest

from consumer.errors import DeadLetterReason, DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.results import Skipped, SkipReason
from consumer.stream.lane import steady_clock
from consumer.stream.retry import RetryPolicy
from consumer.stream.signals import BreakerMoved, BreakerReason, Ending, ParkReason
from tests.unit.stream.harness import DOWN, POISON, lane_on, until
from tests.unit.stream.samples import P0

REJECTED = Permanent("422", reason=DeadLetterReason.REJECTED, upstream=Upstream.HINDSIGHT)
UNDECODABLE = Permanent("not JSON", reason=DeadLetterReason.UNDECODABLE)


async def test_an_outage_costs_no_attempts_and_probes_one_at_a_time() -> None:
    async with lane_on(limit=8) as rig:
        for n in range(20):
            rig.work.always[f"{n}".encode()] = DOWN
            rig.source.produce(f"{n}".encode())
        await until(lambda: rig.told(BreakerMoved))
        assert rig.lane.state().breakers == {Upstream.HINDSIGHT: BreakerReason.UNREACHABLE}
        await until(lambda: not rig.work.running)
        rig.work.most = 0
        probed = rig.work.started
        await rig.advancing(lambda: rig.work.started > probed + 40, seconds=2.0)
        assert rig.work.most == 1
        assert all(len(offsets) > 1 for offsets in rig.work.order.values()), "keys take turns as probes"
        rig.work.always.clear()
        await rig.drained()
        assert rig.letters.taken == []
        assert {ended.attempts for ended in rig.ended(Ending.SUCCEEDED)} == {0}
        assert [(moved.opened, moved.reason) for moved in rig.told(BreakerMoved)] == [
            (True, BreakerReason.UNREACHABLE),
            (False, BreakerReason.UNREACHABLE),
        ]


async def test_a_breaker_that_is_open_for_another_reason_says_so() -> None:
    async with lane_on(limit=1) as rig:
        rig.work.script[b"a"] = [DOWN, UpstreamDown("401", upstream=Upstream.HINDSIGHT, kind=DownKind.REFUSED)]
        rig.source.produce(b"a")
        await rig.drained()
        assert [(moved.opened, moved.reason) for moved in rig.told(BreakerMoved)] == [
            (True, BreakerReason.UNREACHABLE),
            (False, BreakerReason.UNREACHABLE),
            (True, BreakerReason.REFUSED),
            (False, BreakerReason.REFUSED),
        ]


async def test_polling_goes_on_while_a_breaker_is_open() -> None:
    async with lane_on() as rig:
        rig.work.always[b"a"] = DOWN
        rig.source.produce(b"a")
        await until(lambda: rig.lane.state().breakers)
        polls = rig.source.polls
        await until(lambda: rig.source.polls > polls + 3)


async def test_a_skip_as_a_probe_goes_by_at_once() -> None:
    async with lane_on(limit=1) as rig:
        rig.work.always[b"a"] = DOWN
        rig.source.produce(b"a")
        await until(lambda: rig.lane.state().breakers)
        for n in range(5):
            rig.work.script[f"{n}".encode()] = [Skipped(SkipReason.NO_AGENT)]
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.source.delivered) == 6)
        await rig.advancing(lambda: rig.ended(Ending.SKIPPED), seconds=2.0)
        await until(lambda: len(rig.ended(Ending.SKIPPED)) == 5)
        assert rig.lane.state().breakers


@pytest.mark.parametrize("count", [1, 3])
async def test_poison_ends_as_dead_letters_and_the_other_keys_go_on(count: int) -> None:
    async with lane_on(limit=8, retry=RetryPolicy(max_attempts=4)) as rig:
        poisoned = [f"poison{n}".encode() for n in range(count)]
        for key in poisoned:
            rig.work.always[key] = POISON
            rig.source.produce(key)
        good = [f"good{n}".encode() for n in range(30)]
        for key in good:
            rig.source.produce(key)
        await rig.advancing(lambda: all(rig.work.order[0, key] for key in good), seconds=1.0)
        await rig.drained()
        assert sorted(key or b"" for key, _, _ in rig.letters.taken) == sorted(poisoned)
        assert {headers["dead-letter-reason"] for _, _, headers in rig.letters.taken} == {b"attempts_exhausted"}
        assert {headers["dead-letter-attempts"] for _, _, headers in rig.letters.taken} == {b"4"}
        assert rig.lane.state().breakers == {}


async def test_poison_that_is_slow_to_die_holds_up_only_its_key() -> None:
    async with lane_on(limit=2) as rig:
        rig.work.always[b"poison"] = Transient("503", upstream=Upstream.HINDSIGHT, retry_after=300.0)
        rig.source.produce(b"poison")
        for n in range(50):
            rig.source.produce(f"{n}".encode())
        await until(lambda: len(rig.ended(Ending.SUCCEEDED)) == 50)
        assert rig.source.committed == {}


@pytest.mark.parametrize("failure", [OSError("no broker"), asyncio.CancelledError(), DOWN])
async def test_a_dead_letter_topic_that_is_down_holds_the_record_visibly(failure: BaseException) -> None:
    async with lane_on() as rig:
        rig.letters.fails = failure
        rig.work.always[b"bad"] = UNDECODABLE
        rig.source.produce(b"bad", b"\xff")
        rig.source.produce(b"bad", b"\xfe")
        rig.source.produce(b"good")
        await rig.advancing(lambda: rig.letters.tries > 3)
        assert rig.lane.state().parked[ParkReason.DEAD_LETTER_UNAVAILABLE] == 1
        assert rig.source.committed == {}
        held = rig.ended(Ending.RETRIED)
        assert {told.reason for told in held} == {ParkReason.DEAD_LETTER_UNAVAILABLE}
        assert held[-1].error.count("its dead letter") == 1
        assert "not JSON" in held[-1].error
        rig.letters.fails = None
        await rig.drained()
        assert [value for _, value, _ in rig.letters.taken] == [b"\xff", b"\xfe"]
        assert rig.work.order[0, b"good"] == [2]


async def test_a_handler_is_not_asked_again_for_a_record_whose_dead_letter_waits() -> None:
    async with lane_on() as rig:
        rig.letters.fails = OSError()
        rig.work.script[b"a"] = [REJECTED]
        rig.source.produce(b"a")
        await rig.advancing(lambda: rig.letters.tries > 3)
        rig.letters.fails = None
        await rig.drained()
        assert rig.work.order[0, b"a"] == [0]
        [letter] = rig.letters.taken
        assert letter[2]["dead-letter-event-id"] == b"event-0"


async def test_a_dead_letter_that_is_too_large_is_cut() -> None:
    async with lane_on() as rig:
        rig.letters.limit = 5
        rig.work.script[b"a"] = [REJECTED]
        rig.source.produce(b"a", b"0123456789")
        await until(lambda: rig.lag == 0)
        [(_, value, headers)] = rig.letters.taken
        assert value == b"01234"
        assert headers["dead-letter-truncated-from"] == b"10"


async def test_a_run_of_refusals_does_not_drain_the_topic_into_dead_letters() -> None:
    async with lane_on(limit=1) as rig:
        for n in range(40):
            rig.work.always[f"{n}".encode()] = REJECTED
            rig.source.produce(f"{n}".encode())
        await until(lambda: rig.lane.state().breakers == {Upstream.HINDSIGHT: BreakerReason.SLOWED})
        assert len(rig.letters.taken) == 20
        polls = rig.source.polls
        await until(lambda: rig.source.polls > polls + 3)
        assert len(rig.letters.taken) == 20
        rig.clock.now += 2.0
        await until(lambda: len(rig.letters.taken) == 21)
        rig.work.always.clear()
        await rig.advancing(lambda: rig.ended(Ending.SUCCEEDED), seconds=2.0)
        await until(lambda: rig.lag == 0)
        assert rig.told(BreakerMoved)[-1].opened is False


async def test_undecodable_records_do_not_slow_the_lane() -> None:
    async with lane_on() as rig:
        rig.work.always[None] = UNDECODABLE
        for _ in range(60):
            rig.source.produce(None, None)
        await until(lambda: rig.lag == 0)
        assert len(rig.letters.taken) == 60
        assert rig.source.committed == {P0: 60}


async def test_a_machine_whose_time_is_put_back_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = steady_clock()
    before, wall = steady(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall - 3600.0)
    assert before <= steady() < before + 60.0
    async with lane_on() as rig:
        rig.work.always[b"a"] = DOWN
        rig.source.produce(b"a", timestamp=int(rig.clock.now * 1000))
        await until(lambda: rig.lane.state().breakers)
        rig.lane._wall = rig.lane._work._wall = lambda: rig.clock.now - 3600.0
        rig.work.always.clear()
        await rig.advancing(lambda: rig.ended(Ending.SUCCEEDED), seconds=1.0)
        assert rig.ended(Ending.SUCCEEDED)[0].age < -3000.0, "its age is by the machine's time"
        await until(lambda: rig.lane.state().last_poll < rig.clock.now - 3000.0)
