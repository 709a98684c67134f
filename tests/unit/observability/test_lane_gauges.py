import asyncio
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry

from consumer.errors import Upstream
from consumer.observability import lane_gauges
from consumer.observability.lane_gauges import Heartbeat, LaneGauges
from consumer.stream.hooks import BreakerReason, LaneState, ParkReason
from tests.unit.observability.samples import lane, value


def registered(*states: LaneState) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(LaneGauges(lambda: states))
    return registry


def test_lane_gauges_have_the_lanes_values() -> None:
    registry = registered(
        lane(lane="recall", in_flight=3, buffered=40, last_poll=100.5, last_commit=99.0, oldest_uncommitted=2.5)
    )
    assert value(registry, "inflight_events", lane="recall") == 3
    assert value(registry, "buffered_events", lane="recall") == 40
    assert value(registry, "last_poll_timestamp_seconds", lane="recall") == 100.5
    assert value(registry, "last_commit_timestamp_seconds", lane="recall") == 99.0
    assert value(registry, "oldest_uncommitted_seconds", lane="recall") == 2.5


def test_parked_records_have_a_series_for_every_reason() -> None:
    registry = registered(lane(parked={ParkReason.NOT_YET: 2}))
    assert value(registry, "parked_events", lane="retain", reason="not_yet") == 2
    assert value(registry, "parked_events", lane="retain", reason="retry") == 0
    assert value(registry, "parked_events", lane="retain", reason="dead_letter_unavailable") == 0


def test_an_open_breaker_is_1_only_for_its_reason() -> None:
    registry = registered(lane(breakers={Upstream.HINDSIGHT: BreakerReason.REFUSED}))
    values = {
        (upstream, reason): value(registry, "breaker_open", lane="retain", upstream=upstream, reason=reason)
        for upstream in Upstream
        for reason in BreakerReason
    }
    assert values.pop((Upstream.HINDSIGHT, BreakerReason.REFUSED)) == 1
    assert set(values.values()) == {0}


def test_partitions_are_summed_over_lanes() -> None:
    registry = registered(lane(lane="recall", assigned={"a": 4}, paused={"a": 1}), lane(assigned={"a": 2, "b": 8}))
    assert value(registry, "assigned_partitions", topic="a") == 6
    assert value(registry, "assigned_partitions", topic="b") == 8
    assert value(registry, "paused_partitions", topic="a") == 1
    assert value(registry, "paused_partitions", topic="b") == 0


def test_the_gauges_are_described_so_that_a_second_set_is_refused() -> None:
    registry = registered()
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(LaneGauges(lambda: ()))


def test_a_heartbeat_has_no_lanes_before_its_first_beat() -> None:
    assert Heartbeat(lambda: [lane()], lambda: 10.0).snapshot == lane_gauges.LaneSnapshot(10.0, ())


def test_a_beat_keeps_the_lane_states_and_their_time() -> None:
    in_flight, times = iter([1, 2]), iter([10.0, 20.0])
    heartbeat = Heartbeat(lambda: [lane(in_flight=next(in_flight))], lambda: next(times))
    heartbeat.beat()
    assert heartbeat.started == 10.0
    assert heartbeat.snapshot == heartbeat.snapshot == lane_gauges.LaneSnapshot(20.0, (lane(in_flight=1),))


async def test_a_running_heartbeat_beats_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_gauges, "BEAT", 0.0)
    third = asyncio.Event()
    beats = 0

    def states() -> Iterable[LaneState]:
        nonlocal beats
        beats += 1
        if beats == 3:
            third.set()
        return [lane(in_flight=beats)]

    heartbeat = Heartbeat(states)
    task = asyncio.create_task(heartbeat.run())
    await asyncio.wait_for(third.wait(), 10)
    task.cancel()
    assert heartbeat.snapshot.lanes[0].in_flight >= 3
