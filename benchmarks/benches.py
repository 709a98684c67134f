"""The benchmarks, each with its systems and sizes. Systems run in turns, so that noise on the machine affects all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import recall, systems
from benchmarks.measure import Result
from benchmarks.run import Size, measure
from benchmarks.systems import System, transport_alone, worker
from benchmarks.testbed import Testbed

SINK_MS = 50.0
RECORDS = 100_000
"""Records in Kafka before the first run."""

FAST, DEFAULT = "pyreqwest", "httpx"


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark.

    Attributes:
        asks: the question that it answers.
        run: yields a result for each run.
        minutes: its approximate duration.
    """

    name: str
    asks: str
    run: Callable[[Testbed], Iterator[Result]]
    minutes: float


def _turns(bench: str, matrix: list[tuple[System, Size]], testbed: Testbed, rounds: int = 3) -> Iterator[Result]:
    with testbed.sink(SINK_MS) as sink:
        for _ in range(1 if testbed.quick else rounds):
            for system, size in matrix:
                yield measure(bench, system, testbed, sink, size.quick() if testbed.quick else size)


def _java(testbed: Testbed) -> list[System]:
    return [] if testbed.classpath is None else [systems.PARALLEL_CONSUMER]


def _sink(testbed: Testbed) -> Iterator[Result]:
    sizes = [Size(64, seconds=4, warm_up=1), Size(256, seconds=4, warm_up=1)]
    return _turns("sink", [(systems.RAW, size) for size in sizes], testbed, rounds=1)


def _throughput(testbed: Testbed) -> Iterator[Result]:
    python = [systems.FASTSTREAM_AIOHTTP, systems.CONCURRENT, systems.FASTSTREAM, systems.PLAIN]
    matrix = [transport_alone(FAST), worker(FAST), *_java(testbed), transport_alone(DEFAULT), worker(DEFAULT), *python]
    return _turns("throughput", [(system, Size(64, seconds=6)) for system in matrix], testbed)


def _density(testbed: Testbed) -> Iterator[Result]:
    python = [systems.FASTSTREAM_AIOHTTP, systems.CONCURRENT]
    matrix = [transport_alone(FAST), worker(FAST), *_java(testbed), transport_alone(DEFAULT), worker(DEFAULT), *python]
    sizes = [(system, Size(256, seconds=7)) for system in matrix]
    return _turns("density", [*sizes, (worker(FAST), Size(128, workers=2, seconds=7))], testbed)


def _scaling(testbed: Testbed) -> Iterator[Result]:
    sizes = [Size(16, workers=workers, seconds=6) for workers in (1, 2, 4)]
    return _turns("scaling", [(worker(FAST), size) for size in sizes], testbed)


def _logging(testbed: Testbed) -> Iterator[Result]:
    quiet = worker(FAST, name=f"paperclip-memory, {FAST}, log_level warning", LOG_LEVEL="warning")
    return _turns("logging", [(worker(FAST), Size(64)), (quiet, Size(64))], testbed, rounds=2)


def _recall(testbed: Testbed) -> Iterator[Result]:
    for backend in (FAST, DEFAULT):
        yield recall.measure(backend, testbed, 8 if testbed.quick else 20)


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
