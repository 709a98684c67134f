"""From what a run left behind to one JSON line. Pure.

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
    """What the subject's processes had used when looked at: CPU seconds, and megabytes of memory (resident)."""

    at: float
    cpu: float
    rss: float


@dataclass(frozen=True, slots=True)
class Line:
    """One run of one subject, as it is printed and kept.

    Attributes:
        bench: which question it answers.
        in_flight: requests at once, of each worker.
        of_ideal: 1 if every slot is always used: events/s x sink latency ÷ requests in flight of all workers.
        cpu_us_per_event: all threads of all the subject's processes.
        rss_mb: the most memory that it had.
        p50_ms, p99_ms: how long an event holds its slot: from one request of a connection to its next. For recalls:
            from produced to published.
        load: of the machine before the run (one minute's average).
    """

    bench: str
    subject: str
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
        """The line, without a line break."""
        return json.dumps({name: _short(value) for name, value in asdict(self).items()})


def middle(start: float, end: float) -> Window:
    """The window of a run."""
    cut = (end - start) * CUT
    return Window(start + cut, end - cut)


def within(times: Sequence[float], window: Window) -> slice:
    """Which of these ascending times lie in the window."""
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
    found = []
    for at, connection in zip(times, connections, strict=True):
        if connection in last:
            found.append(at - last[connection])
        last[connection] = at
    return found


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed (nearest rank); 0 if there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def medians(lines: Iterable[Line]) -> list[Line]:
    """One line for each bench, subject and size: the median of each figure over its runs; in the order first seen."""
    runs: dict[tuple[str, str, int, int], list[Line]] = {}
    for line in lines:
        runs.setdefault((line.bench, line.subject, line.in_flight, line.workers), []).append(line)
    return [_median(group) for group in runs.values()]


def read(text: str) -> list[Line]:
    """The lines that `Line.json` wrote."""
    return [Line(**json.loads(line)) for line in text.splitlines() if line.strip()]


_FIGURES = ("events_per_second", "of_ideal", "cpu_us_per_event", "rss_mb", "p50_ms", "p99_ms", "load")


def _median(runs: list[Line]) -> Line:
    figures = {name: median(getattr(run, name) for run in runs) for name in _FIGURES}
    first = runs[0]
    return Line(first.bench, first.subject, first.in_flight, first.sink_ms, first.workers, **figures)


def _short(value: object) -> object:
    return round(value, 3 if abs(value) < 10 else 1) if isinstance(value, float) else value
