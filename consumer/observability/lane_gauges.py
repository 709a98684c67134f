"""How the lanes stand, for readers in other threads: a look taken once a second on the event loop, and its gauges."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from consumer.errors import Upstream
from consumer.observability import metrics as names
from consumer.observability.metrics import Metric
from consumer.stream.hooks import BreakerReason, LaneState, ParkReason

BEAT = 1.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader sees: `at` is when it was seen, seconds since the epoch."""

    at: float
    lanes: tuple[LaneState, ...]


class Pulse:
    """Shows that the event loop runs, and what the lanes said when it last did.

    Lanes are asked on the loop; other threads read what it last saw. A busy loop makes that old, and hangs nobody.

    Args:
        states: how the lanes stand now; what it gives must not change later.
        now: seconds since the epoch.
    """

    def __init__(self, states: Callable[[], Iterable[LaneState]], now: Callable[[], float] = time.time) -> None:
        self._states = states
        self._now = now
        self.started = now()
        self._seen = Seen(self.started, ())

    @property
    def seen(self) -> Seen:
        """What was seen last."""
        return self._seen

    def beat(self) -> None:
        """Look now; on the event loop only."""
        self._seen = Seen(self._now(), tuple(self._states()))

    async def run(self) -> None:
        """Look every second, for ever."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT)


class LaneGauges(Collector):
    """The gauges of the lanes, made from their states at each scrape."""

    def __init__(self, states: Callable[[], Iterable[LaneState]]) -> None:
        self._states = states

    def describe(self) -> Iterable[Family]:
        return gauges(())

    def collect(self) -> Iterable[Family]:
        return gauges(self._states())


def gauges(states: Iterable[LaneState]) -> list[Family]:
    """The gauge families of these states. A breaker's series are there for each upstream and reason, mostly 0."""
    lanes = tuple(states)
    return [
        *(_per_lane(metric, lanes, value) for metric, value in _PER_LANE.items()),
        _family(
            names.PARKED,
            (((lane.lane, reason), lane.parked.get(reason, 0)) for lane in lanes for reason in ParkReason),
        ),
        _family(
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
    ]


_PER_LANE: dict[Metric, Callable[[LaneState], float]] = {
    names.INFLIGHT: lambda lane: lane.in_flight,
    names.BUFFERED: lambda lane: lane.buffered,
    names.LAST_POLL: lambda lane: lane.last_poll,
    names.LAST_COMMIT: lambda lane: lane.last_commit,
    names.OLDEST_UNCOMMITTED: lambda lane: lane.oldest_uncommitted,
}


def _per_lane(metric: Metric, lanes: Iterable[LaneState], value: Callable[[LaneState], float]) -> Family:
    return _family(metric, (((lane.lane,), value(lane)) for lane in lanes))


def _per_topic(metric: Metric, lanes: Iterable[LaneState], counts: Callable[[LaneState], Mapping[str, int]]) -> Family:
    totals: dict[str, int] = {}
    for lane in lanes:
        for topic in {**lane.assigned, **counts(lane)}:
            totals[topic] = totals.get(topic, 0) + counts(lane).get(topic, 0)
    return _family(metric, (((topic,), count) for topic, count in totals.items()))


def _family(metric: Metric, samples: Iterable[tuple[Sequence[str], float]]) -> Family:
    family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
