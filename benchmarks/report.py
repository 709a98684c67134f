"""The text of `docs/benchmarks.md` and the printed verdicts. Pure: results in, text out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measure import Result, medians

FAST, DEFAULT = "paperclip-memory, pyreqwest", "paperclip-memory, httpx"
FAST_ALONE, DEFAULT_ALONE = "pyreqwest alone, no Kafka", "httpx alone, no Kafka"
JAVA = "Confluent's parallel consumer, Vert.x (Java)"
PYTHON_PEERS = ("aiokafka", "FastStream", "faststream")
"""Prefixes of their names."""
RECALL_OVER_MS = 50.0
"""Milliseconds that a recall may take beyond the simulated latencies."""

_HEAD = (
    "| bench | system | in flight | events/s | of ideal | CPU µs/event | RSS MB | p50 ms | p99 ms |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """Whether one of our targets is met, with the measured values."""

    bar: str
    measured: str
    holds: bool

    @property
    def text(self) -> str:
        return f"{'✓' if self.holds else '✗'} {self.bar}: {self.measured}"


def table(results: Iterable[Result]) -> str:
    """A Markdown table."""
    return "\n".join([*_HEAD, *(_row(result) for result in results)])


def _row(result: Result) -> str:
    slots = f"{result.workers} x {result.in_flight}" if result.workers > 1 else str(result.in_flight)
    return (
        f"| {result.bench} | {result.system} | {slots} | {result.events_per_second:,.0f} | {result.of_ideal:.3f} "
        f"| {result.cpu_us_per_event:,.0f} | {result.rss_mb:.0f} | {result.p50_ms:.1f} | {result.p99_ms:.1f} |"
    )


def check_targets(results: Sequence[Result]) -> list[TargetCheck]:
    """The verdicts on every target that these medians cover."""
    collected: list[TargetCheck] = []
    for evaluate in (
        _near_the_sender,
        _ahead_of_java,
        _cpu,
        _two_workers,
        _ahead_of_python,
        _recall,
        _scaling,
        _memory,
    ):
        collected += evaluate(results)
    return collected


def _pick(results: Sequence[Result], bench: str, system: str, workers: int = 1) -> Result | None:
    return next((o for o in results if (o.bench, o.system, o.workers) == (bench, system, workers)), None)


def _near_the_sender(results: Sequence[Result]) -> list[TargetCheck]:
    return _ratio(
        "64 in flight: at least 0.97 of what the same transport reaches without Kafka",
        _pick(results, "throughput", FAST),
        _pick(results, "throughput", FAST_ALONE),
        0.97,
    )


def _ahead_of_java(results: Sequence[Result]) -> list[TargetCheck]:
    worker, java = _pick(results, "throughput", FAST), _pick(results, "throughput", JAVA)
    return _ratio("64 in flight: ahead of Java's parallel consumer", worker, java, 1.0)


def _cpu(results: Sequence[Result]) -> list[TargetCheck]:
    worker, java = _pick(results, "density", FAST), _pick(results, "density", JAVA)
    if worker is None:
        return []
    limit = max(250.0, java.cpu_us_per_event if java else 0.0)
    beside = f", Java's {java.cpu_us_per_event:.0f}" if java else ""
    return [
        TargetCheck(
            "256 in flight: CPU per event at most Java's, or 250 µs",
            f"{worker.cpu_us_per_event:.0f} µs{beside}",
            worker.cpu_us_per_event <= limit,
        )
    ]


def _two_workers(results: Sequence[Result]) -> list[TargetCheck]:
    worker, java = _pick(results, "density", FAST, workers=2), _pick(results, "density", JAVA)
    return _ratio("two workers of 128: at least Java's events/s with 256", worker, java, 1.0)


def _ahead_of_python(results: Sequence[Result]) -> list[TargetCheck]:
    collected: list[TargetCheck] = []
    for bench, slots in (("throughput", 64), ("density", 256)):
        peers = [result for result in results if result.bench == bench and result.system.startswith(PYTHON_PEERS)]
        best = max(peers, key=lambda result: result.events_per_second, default=None)
        for name in (FAST, DEFAULT):
            collected += _ratio(
                f"{slots} in flight, {name}: ahead of every Python peer", _pick(results, bench, name), best, 1.0
            )
    return collected


def _recall(results: Sequence[Result]) -> list[TargetCheck]:
    limit = RECALL_OVER_MS
    return [
        TargetCheck(
            f"recall behind retains ({result.system}): p99 at most the simulated {result.sink_ms:.0f} ms + {limit:.0f}",
            f"{result.p99_ms:.0f} ms",
            result.p99_ms <= result.sink_ms + limit,
        )
        for result in results
        if result.bench == "recall"
    ]


def _scaling(results: Sequence[Result]) -> list[TargetCheck]:
    one = _pick(results, "scaling", FAST)
    bars = ((2, 1.95), (4, 3.8))
    return [
        check
        for workers, least in bars
        for check in _ratio(
            f"{workers} workers: at least {least} x one", _pick(results, "scaling", FAST, workers), one, least
        )
    ]


def _memory(results: Sequence[Result]) -> list[TargetCheck]:
    waiting = [result.rss_mb for result in results if result.bench in ("scaling", "recall") and result.workers == 1]
    if not waiting:
        return []
    return [TargetCheck("100,000 records waiting: at most 150 MB", f"{max(waiting):.0f} MB", max(waiting) <= 150)]


def _ratio(bar: str, worker: Result | None, other: Result | None, least: float) -> list[TargetCheck]:
    if worker is None or other is None:
        return []
    ratio = worker.events_per_second / other.events_per_second
    measured = f"{ratio:.3f} ({worker.events_per_second:,.0f}/s, {other.events_per_second:,.0f}/s)"
    return [TargetCheck(bar, measured, ratio >= least)]


def page(results: Sequence[Result], machine: str) -> str:
    """The complete page, from the results of all runs."""
    middle = medians(results)
    loads = [result.load for result in results]
    sections: list[tuple[str, Callable[[Result], bool], str]] = [
        ("64 in flight", lambda result: result.bench == "throughput", _THROUGHPUT),
        ("256 in flight", lambda result: result.bench == "density", _DENSITY),
        ("More workers", lambda result: result.bench == "scaling", _SCALING),
        ("Recall behind waiting retains", lambda result: result.bench == "recall", _RECALL),
        ("What logging costs", lambda result: result.bench == "logging", _LOGGING),
        ("The sink", lambda result: result.bench == "sink", _SINK),
    ]
    parts = [_INTRODUCTION.format(machine=machine, low=min(loads), high=max(loads))]
    parts += ["## What must hold\n", *(f"- {check.text}" for check in check_targets(middle)), ""]
    for title, belongs, text in sections:
        chosen = [result for result in middle if belongs(result)]
        if chosen:
            parts += [f"## {title}\n", text, table(chosen), ""]
    return "\n".join(parts)


_INTRODUCTION = """\
# Benchmarks

`make bench` runs all benchmarks and writes this page; `benchmarks/results.jsonl` has the result of every run.
`python -m benchmarks --help` lists the parts. The image has Python 3.13; to measure on it, run
`PYTHON=python3.13 make setup` in a new clone.

![Events per second and CPU per event](benchmarks.svg)

Apache Kafka with 100,000 comments in 8 partitions, and a sink that answers each retain after 50 ms. All systems read
the same records and send the same requests. Ours is the command `paperclip-memory worker`, with metrics, health checks
and a JSON log line for each record. Each peer is written as its documentation suggests, in `benchmarks/peers/`. A
measurement starts after all members have joined and leaves out its first and last tenth. Systems run in turns, and the
tables show medians.

- **of ideal**: events/s x sink latency ÷ requests in flight; 1 if every slot is always in use.
- **CPU**: of all threads of all processes of the system. **RSS**: their maximum total memory.
- **p50, p99**: how long an event occupies its slot, from one request of a connection to the next; at best 50 ms.
  For recalls: from producing the run's start until its memories are read back from Kafka.

Measured on {machine}.
Load average before each run: {low:.1f} to {high:.1f}. Kafka, the sink and the system under test share the machine.
"""
_THROUGHPUT = """\
"alone, no Kafka" is our HTTP transport by itself; the difference to `paperclip-memory` is the cost of Kafka, ordering,
commits, retries, metrics and logs. The guarantees differ: the parallel consumer keeps the order per key but has no dead
letters; FastStream with `max_workers` keeps no order and acknowledges before handling; faststream-concurrent-aiokafka
commits even if a handler raises.

On Python 3.11, aiohttp writes a request's body one turn of the event loop later than on 3.12 and above. Requests then
go out in bursts, which costs our httpx transport 5 % of its throughput here.
"""
_DENSITY = """\
How many events one core can handle. One worker is one Python process and so uses one core; `2 x 128` is two workers of
one group.
"""
_SCALING = """\
Workers of one group, each with 16 in flight (the default), measured after the last one has joined.
"""
_RECALL = """\
One worker with both lanes. Runs start 20 times a second while 100,000 comments wait and 16 retains are in flight.
Paperclip answers after 20 ms, Hindsight's recall after 100 ms. "in flight" is that of the retain lane, events/s and CPU
are of both lanes, "of ideal" is 120 ms ÷ p50.
"""
_LOGGING = """\
With `log_level` info, the default, the worker logs a line for each record; with `warning`, none.
"""
_SINK = """\
Bare sockets against the sink show that the sink does not limit the results.
"""
