"""The lanes' states for other threads: a snapshot taken once a second on the event loop, and its gauges."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from consumer.errors import Upstream
from consumer.observability import metrics as names
from consumer.observability.metrics import Metric
from consumer.observability.prometheus import gauge_family
from consumer.stream.hooks import BreakerReason, LaneState, ParkReason

BEAT = 1.0
"""Seconds between two snapshots."""


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """The lanes' states at a time, in seconds since the epoch."""

    at: float
    lanes: tuple[LaneState, ...]


class Heartbeat:
    """Shows that the event loop runs, and the lanes' states when it last did.

    Lanes are asked on the event loop; other threads read the last snapshot. A blocked loop makes the snapshot old and
    blocks no reader.

    Args:
        states: the current states; they must not change afterwards.
        now: seconds since the epoch.
    """

    def __init__(self, states: Callable[[], Iterable[LaneState]], now: Callable[[], float] = time.time) -> None:
        self._states = states
        self._now = now
        self.started = now()
        self._snapshot = LaneSnapshot(self.started, ())

    @property
    def snapshot(self) -> LaneSnapshot:
        """The last snapshot."""
        return self._snapshot

    def beat(self) -> None:
        """Take a snapshot; only on the event loop."""
        self._snapshot = LaneSnapshot(self._now(), tuple(self._states()))

    async def run(self) -> None:
        """Take a snapshot every second, forever."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT)


class LaneGauges(Collector):
    """The gauges of the lanes, computed from their states at each scrape."""

    def __init__(self, states: Callable[[], Iterable[LaneState]]) -> None:
        self._states = states

    def describe(self) -> Iterable[Family]:
        return gauges(())

    def collect(self) -> Iterable[Family]:
        return gauges(self._states())


def gauges(states: Iterable[LaneState]) -> list[Family]:
    """The gauge families of these states. A breaker has a series for each upstream and reason, mostly 0."""
    lanes = tuple(states)
    return [
        *(_per_lane(metric, lanes, value) for metric, value in _PER_LANE.items()),
        gauge_family(
            names.PARKED,
            (((lane.lane, reason), lane.parked.get(reason, 0)) for lane in lanes for reason in ParkReason),
        ),
        gauge_family(
            names.BREAKER_OPEN,
            (
                ((lane.lane, upstream, reason), lane.breakers.get(upstream) is reason)
                for lane in lanes
                for upstream in Upstream
                for reason in BreakerReason
            ),
        ),
        _per_topic(names.PAUSED, lanes, lambda lane: lane.paused),
        _per_topic(names.ASSIGNED, lanes, lambda lane: lane.assigned),
        gauge_family(
            names.WAITING_DELAY,
            (
                ((topic, str(partition)), max(0.0, delay))
                for lane in lanes
                for (topic, partition), delay in lane.waiting.items()
            ),
        ),
    ]


_PER_LANE: dict[Metric, Callable[[LaneState], float]] = {
    names.INFLIGHT: lambda lane: lane.in_flight,
    names.BUFFERED: lambda lane: lane.buffered,
    names.LAST_POLL: lambda lane: lane.last_poll,
    names.LAST_COMMIT: lambda lane: lane.last_commit,
    names.OLDEST_UNCOMMITTED: lambda lane: lane.oldest_uncommitted,
}


def _per_lane(metric: Metric, lanes: Iterable[LaneState], value: Callable[[LaneState], float]) -> Family:
    return gauge_family(metric, (((lane.lane,), value(lane)) for lane in lanes))


def _per_topic(metric: Metric, lanes: Iterable[LaneState], counts: Callable[[LaneState], Mapping[str, int]]) -> Family:
    totals: dict[str, int] = {}
    for lane in lanes:
        for topic in {**lane.assigned, **counts(lane)}:
            totals[topic] = totals.get(topic, 0) + counts(lane).get(topic, 0)
    return gauge_family(metric, (((topic,), count) for topic, count in totals.items()))
