"""Computes the result of a run from its measurements. Pure.

The window of a run is its middle: the first and the last tenth are left out.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import NamedTuple

CUT = 0.1


class Window(NamedTuple):
    """A span of time, in seconds of the monotonic clock."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Sample(NamedTuple):
    """CPU seconds and megabytes of resident memory used by the system's processes at one moment."""

    at: float
    cpu: float
    rss: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run of one system.

    Attributes:
        bench: the benchmark's name.
        in_flight: requests in flight, of each worker.
        of_ideal: 1 if every slot is always in use: events/s x sink latency ÷ requests in flight of all workers.
        cpu_us_per_event: of all threads of all processes of the system.
        rss_mb: maximum total memory.
        p50_ms, p99_ms: how long an event occupies its slot, from one request of a connection to the next. For recalls:
            from producing the run's start to its memories on Kafka.
        load: the machine's load average of one minute before the run.
    """

    bench: str
    system: str
    in_flight: int
    sink_ms: float
    workers: int
    events_per_second: float
    of_ideal: float
    cpu_us_per_event: float
    rss_mb: float
    p50_ms: float
    p99_ms: float
    load: float

    @property
    def json(self) -> str:
        """The result as one line of JSON, without a line break."""
        return json.dumps({name: _short(value) for name, value in asdict(self).items()})


def middle(start: float, end: float) -> Window:
    """The window of a run."""
    cut = (end - start) * CUT
    return Window(start + cut, end - cut)


def within(times: Sequence[float], window: Window) -> slice:
    """The slice of these ascending times that is in the window."""
    return slice(bisect_left(times, window.start), bisect_right(times, window.end))


def cpu_at(samples: Sequence[Sample], at: float) -> float:
    """CPU seconds used by then, between two samples in proportion; the nearest sample's outside of them."""
    after = bisect_left(samples, at, key=lambda sample: sample.at)
    if after == 0:
        return samples[0].cpu
    if after == len(samples):
        return samples[-1].cpu
    left, right = samples[after - 1], samples[after]
    return left.cpu + (right.cpu - left.cpu) * (at - left.at) / (right.at - left.at)


def turnarounds(times: Sequence[float], connections: Sequence[int]) -> list[float]:
    """Seconds between one request of a connection and its next."""
    last: dict[int, float] = {}
    gaps = []
    for at, connection in zip(times, connections, strict=True):
        if connection in last:
            gaps.append(at - last[connection])
        last[connection] = at
    return gaps


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed (nearest rank); 0 if there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def medians(results: Iterable[Result]) -> list[Result]:
    """One result for each benchmark, system and size: the medians over its runs, in order of first appearance."""
    runs: dict[tuple[str, str, int, int], list[Result]] = {}
    for result in results:
        runs.setdefault((result.bench, result.system, result.in_flight, result.workers), []).append(result)
    return [_median(group) for group in runs.values()]


def read(text: str) -> list[Result]:
    """Parse the lines that `Result.json` made."""
    return [Result(**json.loads(line)) for line in text.splitlines() if line.strip()]


_FIGURES = ("events_per_second", "of_ideal", "cpu_us_per_event", "rss_mb", "p50_ms", "p99_ms", "load")


def _median(runs: list[Result]) -> Result:
    figures = {name: median(getattr(run, name) for run in runs) for name in _FIGURES}
    first = runs[0]
    return Result(first.bench, first.system, first.in_flight, first.sink_ms, first.workers, **figures)


def _short(value: object) -> object:
    return round(value, 3 if abs(value) < 10 else 1) if isinstance(value, float) else value
