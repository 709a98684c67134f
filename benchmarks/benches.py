"""The questions, each with its subjects and sizes. Subjects take turns, so that a noisy moment hits all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import recall, subjects
from benchmarks.measure import Line
from benchmarks.run import Size, measure
from benchmarks.stand import Stand
from benchmarks.subjects import Subject, ours, sender

SINK_MS = 50.0
RECORDS = 100_000
"""Records that stand in Kafka from the start."""

FAST, DEFAULT = "pyreqwest", "httpx"


@dataclass(frozen=True, slots=True)
class Bench:
    """A question.

    Attributes:
        asks: the question, for people.
        run: gives a line for each run.
        minutes: roughly how long it takes.
    """

    name: str
    asks: str
    run: Callable[[Stand], Iterator[Line]]
    minutes: float


def _turns(bench: str, contest: list[tuple[Subject, Size]], stand: Stand, rounds: int = 3) -> Iterator[Line]:
    with stand.sink(SINK_MS) as sink:
        for _ in range(1 if stand.quick else rounds):
            for subject, size in contest:
                yield measure(bench, subject, stand, sink, size.quick() if stand.quick else size)


def _java(stand: Stand) -> list[Subject]:
    return [] if stand.classpath is None else [subjects.PARALLEL_CONSUMER]


def _sink(stand: Stand) -> Iterator[Line]:
    sizes = [Size(64, seconds=4, settle=1), Size(256, seconds=4, settle=1)]
    return _turns("sink", [(subjects.RAW, size) for size in sizes], stand, rounds=1)


def _throughput(stand: Stand) -> Iterator[Line]:
    python = [subjects.FASTSTREAM_AIOHTTP, subjects.CONCURRENT, subjects.FASTSTREAM, subjects.PLAIN]
    contest = [sender(FAST), ours(FAST), *_java(stand), sender(DEFAULT), ours(DEFAULT), *python]
    return _turns("throughput", [(subject, Size(64, seconds=6)) for subject in contest], stand)


def _density(stand: Stand) -> Iterator[Line]:
    python = [subjects.FASTSTREAM_AIOHTTP, subjects.CONCURRENT]
    contest = [sender(FAST), ours(FAST), *_java(stand), sender(DEFAULT), ours(DEFAULT), *python]
    sizes = [(subject, Size(256, seconds=7)) for subject in contest]
    return _turns("density", [*sizes, (ours(FAST), Size(128, workers=2, seconds=7))], stand)


def _scaling(stand: Stand) -> Iterator[Line]:
    sizes = [Size(16, workers=workers, seconds=6) for workers in (1, 2, 4)]
    return _turns("scaling", [(ours(FAST), size) for size in sizes], stand)


def _logging(stand: Stand) -> Iterator[Line]:
    quiet = ours(FAST, name=f"paperclip-memory, {FAST}, log_level warning", LOG_LEVEL="warning")
    return _turns("logging", [(ours(FAST), Size(64)), (quiet, Size(64))], stand, rounds=2)


def _recall(stand: Stand) -> Iterator[Line]:
    for backend in (FAST, DEFAULT):
        yield recall.measure(backend, stand, 8 if stand.quick else 20)


BENCHES = (
    Bench("sink", "Does the sink itself limit anything? Bare sockets against it.", _sink, 0.2),
    Bench(
        "throughput", "64 in flight: how near to the ideal, to the sender alone, and to the peers?", _throughput, 4.9
    ),
    Bench("density", "256 in flight: how many events per core?", _density, 5.0),
    Bench("scaling", "1, 2 and 4 workers of one group, 16 in flight each.", _scaling, 2.0),
    Bench("logging", "What does a log line for each record cost?", _logging, 0.9),
    Bench("recall", "How long does a run wait for its memories behind 100,000 retains?", _recall, 0.9),
)
