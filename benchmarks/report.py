"""`docs/benchmarks.md` and what is printed at the end. Pure: lines in, text out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measure import Line, medians

FAST, DEFAULT = "paperclip-memory, pyreqwest", "paperclip-memory, httpx"
FAST_ALONE, DEFAULT_ALONE = "pyreqwest alone, no Kafka", "httpx alone, no Kafka"
JAVA = "Confluent's parallel consumer, Vert.x (Java)"
PYTHON_PEERS = ("aiokafka", "FastStream", "faststream")
"""What their names begin with."""
RECALL_OVER_MS = 50.0
"""What a recall may take beyond the scripted latencies."""

_HEAD = (
    "| bench | subject | in flight | events/s | of ideal | CPU µs/event | RSS MB | p50 ms | p99 ms |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a bar of ours holds; `measured` says by how much."""

    bar: str
    measured: str
    holds: bool

    @property
    def text(self) -> str:
        return f"{'✓' if self.holds else '✗'} {self.bar}: {self.measured}"


def table(lines: Iterable[Line]) -> str:
    """A Markdown table."""
    return "\n".join([*_HEAD, *(_row(line) for line in lines)])


def _row(line: Line) -> str:
    slots = f"{line.workers} x {line.in_flight}" if line.workers > 1 else str(line.in_flight)
    return (
        f"| {line.bench} | {line.subject} | {slots} | {line.events_per_second:,.0f} | {line.of_ideal:.3f} "
        f"| {line.cpu_us_per_event:,.0f} | {line.rss_mb:.0f} | {line.p50_ms:.1f} | {line.p99_ms:.1f} |"
    )


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """The bars that these medians can speak of."""
    found: list[Verdict] = []
    for judge in (_near_the_sender, _ahead_of_java, _cpu, _two_workers, _ahead_of_python, _recall, _scaling, _memory):
        found += judge(lines)
    return found


def _pick(lines: Sequence[Line], bench: str, subject: str, workers: int = 1) -> Line | None:
    return next((o for o in lines if (o.bench, o.subject, o.workers) == (bench, subject, workers)), None)


def _near_the_sender(lines: Sequence[Line]) -> list[Verdict]:
    return _ratio(
        "64 in flight: at least 0.97 of what the same sender reaches without Kafka",
        _pick(lines, "throughput", FAST),
        _pick(lines, "throughput", FAST_ALONE),
        0.97,
    )


def _ahead_of_java(lines: Sequence[Line]) -> list[Verdict]:
    ours, java = _pick(lines, "throughput", FAST), _pick(lines, "throughput", JAVA)
    return _ratio("64 in flight: ahead of Java's parallel consumer", ours, java, 1.0)


def _cpu(lines: Sequence[Line]) -> list[Verdict]:
    ours, java = _pick(lines, "density", FAST), _pick(lines, "density", JAVA)
    if ours is None:
        return []
    limit = max(250.0, java.cpu_us_per_event if java else 0.0)
    beside = f", Java's {java.cpu_us_per_event:.0f}" if java else ""
    return [
        Verdict(
            "256 in flight: CPU per event at most Java's, or 250 µs",
            f"{ours.cpu_us_per_event:.0f} µs{beside}",
            ours.cpu_us_per_event <= limit,
        )
    ]


def _two_workers(lines: Sequence[Line]) -> list[Verdict]:
    ours, java = _pick(lines, "density", FAST, workers=2), _pick(lines, "density", JAVA)
    return _ratio("two workers of 128: at least Java's events/s with 256", ours, java, 1.0)


def _ahead_of_python(lines: Sequence[Line]) -> list[Verdict]:
    found: list[Verdict] = []
    for bench, slots in (("throughput", 64), ("density", 256)):
        peers = [line for line in lines if line.bench == bench and line.subject.startswith(PYTHON_PEERS)]
        best = max(peers, key=lambda line: line.events_per_second, default=None)
        for name in (FAST, DEFAULT):
            found += _ratio(
                f"{slots} in flight, {name}: ahead of every Python peer", _pick(lines, bench, name), best, 1.0
            )
    return found


def _recall(lines: Sequence[Line]) -> list[Verdict]:
    limit = RECALL_OVER_MS
    return [
        Verdict(
            f"recall behind retains ({line.subject}): p99 at most the scripted {line.sink_ms:.0f} ms + {limit:.0f}",
            f"{line.p99_ms:.0f} ms",
            line.p99_ms <= line.sink_ms + limit,
        )
        for line in lines
        if line.bench == "recall"
    ]


def _scaling(lines: Sequence[Line]) -> list[Verdict]:
    one = _pick(lines, "scaling", FAST)
    bars = ((2, 1.95), (4, 3.8))
    return [
        each
        for workers, least in bars
        for each in _ratio(
            f"{workers} workers: at least {least} x one", _pick(lines, "scaling", FAST, workers), one, least
        )
    ]


def _memory(lines: Sequence[Line]) -> list[Verdict]:
    waiting = [line.rss_mb for line in lines if line.bench in ("scaling", "recall") and line.workers == 1]
    if not waiting:
        return []
    return [Verdict("100,000 records waiting: at most 150 MB", f"{max(waiting):.0f} MB", max(waiting) <= 150)]


def _ratio(bar: str, ours: Line | None, other: Line | None, least: float) -> list[Verdict]:
    if ours is None or other is None:
        return []
    ratio = ours.events_per_second / other.events_per_second
    measured = f"{ratio:.3f} ({ours.events_per_second:,.0f}/s, {other.events_per_second:,.0f}/s)"
    return [Verdict(bar, measured, ratio >= least)]


def page(lines: Sequence[Line], machine: str) -> str:
    """The whole page, from every run's line."""
    middle = medians(lines)
    loads = [line.load for line in lines]
    sections: list[tuple[str, Callable[[Line], bool], str]] = [
        ("64 in flight", lambda line: line.bench == "throughput", _THROUGHPUT),
        ("256 in flight", lambda line: line.bench == "density", _DENSITY),
        ("More workers", lambda line: line.bench == "scaling", _SCALING),
        ("Recall behind waiting retains", lambda line: line.bench == "recall", _RECALL),
        ("What logging costs", lambda line: line.bench == "logging", _LOGGING),
        ("The sink", lambda line: line.bench == "sink", _SINK),
    ]
    parts = [_INTRODUCTION.format(machine=machine, low=min(loads), high=max(loads))]
    parts += ["## What must hold\n", *(f"- {verdict.text}" for verdict in verdicts(middle)), ""]
    for title, belongs, text in sections:
        chosen = [line for line in middle if belongs(line)]
        if chosen:
            parts += [f"## {title}\n", text, table(chosen), ""]
    return "\n".join(parts)


_INTRODUCTION = """\
# Benchmarks

`make bench` measures all this and writes this page; every run's line is in `benchmarks/results.jsonl`.
`python -m benchmarks --help` names the parts. The image has Python 3.13: `PYTHON=python3.13 make setup`, in a new
clone, has ours and its Python peers measured on that.

![Events per second and CPU per event](benchmarks.svg)

Real Apache Kafka, 100,000 comments that stand in 8 partitions before the first run, and a sink that answers each
retain after 50 ms. All subjects read the same records and send the same requests. Ours is the command
`paperclip-memory worker`, with metrics, health and a JSON log line for each record; each peer is written as its users
write it, in `benchmarks/peers/`. A run is measured after everything has joined and settled,
its first and last tenth are left out, subjects take turns, and the tables hold the medians.

- **of ideal**: 1 if every slot is always used: events/s x sink latency ÷ requests in flight.
- **CPU**: of all threads of all the subject's processes. **RSS**: the most memory they had together.
- **p50, p99**: how long an event holds its slot: from one request of a connection to its next, so 50 ms at best.
  For recalls: from before the run's start is produced until its memories are read back from Kafka.

Measured on {machine}.
Load average before each run: {low:.1f} to {high:.1f}. Kafka, the sink and the subject share the machine.
"""
_THROUGHPUT = """\
"alone, no Kafka" is our sender without anything around it: what is between it and `paperclip-memory` is the price of
Kafka, order, commits, retries, metrics and logs. The guarantees differ: the parallel consumer keeps the order of a
key, but has no dead letters; FastStream with `max_workers` keeps no order and acknowledges first;
faststream-concurrent-aiokafka commits even when a handler raises.

On Python 3.11 aiohttp writes a request's body one turn of the event loop later than from 3.12 on. Requests then stay in
bunches, which costs our httpx sender a twentieth of its speed here.
"""
_DENSITY = """\
How many events a core can carry. One worker is one Python process, so one core; `2 x 128` are two workers of one group.
"""
_SCALING = """\
Workers of one group, 16 in flight each (the default), measured after the last has joined.
"""
_RECALL = """\
One worker with both lanes. Runs start 20 times a second while 100,000 comments wait and 16 retains are in flight.
Scripted: 20 ms for Paperclip's answer, 100 ms for Hindsight's recall. "in flight" is the retain lane's, events/s and
CPU are of both lanes, "of ideal" is 120 ms ÷ p50.
"""
_LOGGING = """\
`log_level` info, the default, writes a line for each record; `warning` writes none.
"""
_SINK = """\
Bare sockets against the sink: it does not limit the runs.
"""
