"""One run: starts a system, lets it settle, measures it, ends it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import process
from benchmarks.measure import Result, Sample, cpu_at, middle, percentile, turnarounds, within
from benchmarks.systems import System
from benchmarks.testbed import Sink, Testbed
from consumer.embedded.supervise import ServerError, wait_until

START_DEADLINE = 60.0
LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run; `seconds` are measured, after `warm_up`."""

    in_flight: int
    workers: int = 1
    seconds: float = 8.0
    warm_up: float = 2.0

    def quick(self) -> "Size":
        """The same size in a short run."""
        return replace(self, seconds=2.5, warm_up=1.0)


@contextmanager
def running(system: System, testbed: Testbed, sink: Sink, size: Size) -> Iterator[list[int]]:
    """Start the system's processes one after another, so that each rebalance ends before the next one starts."""
    group, children = testbed.group(), list[subprocess.Popen[bytes]]()
    log = testbed.logs / f"{group}.log"
    try:
        for _ in range(size.workers):
            launch = system.launch(testbed, sink, group, size.in_flight)
            with log.open("ab") as out:
                child = subprocess.Popen(
                    launch.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=launch.env, cwd=Path.cwd()
                )
            children.append(child)
            wait_until(lambda: child.poll() is not None or launch.ready(), START_DEADLINE)  # noqa: B023
        yield [child.pid for child in children]
    except OSError as error:  # its /proc is gone, or the sink's port
        raise ServerError(f"running {system.name}", str(error), log=log) from error
    finally:
        for child in children:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.wait()


def measure(bench: str, system: System, testbed: Testbed, sink: Sink, size: Size) -> Result:
    """Run a system once."""
    load = process.load()
    sink.take()
    with running(system, testbed, sink, size) as pids:
        if not wait_until(lambda: sink.count() > 0, START_DEADLINE):
            raise OSError(f"no request arrived within {START_DEADLINE:g} s")
        time.sleep(size.warm_up)
        start = time.monotonic()
        samples = watch(pids, size.seconds)
        times, connections = sink.take()
    in_flight = 1 if system.sequential else size.in_flight
    window = middle(start, start + size.seconds)
    inside = within(times, window)
    count = inside.stop - inside.start
    rate = count / window.seconds
    cpu = cpu_at(samples, window.end) - cpu_at(samples, window.start)
    gaps = turnarounds(times[inside], connections[inside])
    return Result(
        bench=bench,
        system=system.name,
        in_flight=in_flight,
        sink_ms=sink.retain_ms,
        workers=size.workers,
        events_per_second=rate,
        of_ideal=rate * sink.retain_ms / 1000 / (in_flight * size.workers),
        cpu_us_per_event=cpu * 1e6 / max(1, count),
        rss_mb=max(sample.rss for sample in samples),
        p50_ms=percentile(gaps, 50) * 1000,
        p99_ms=percentile(gaps, 99) * 1000,
        load=load,
    )


def watch(pids: Sequence[int], seconds: float) -> list[Sample]:
    """Sample the processes for so many seconds."""
    end = time.monotonic() + seconds
    samples = [process.sample(pids, time.monotonic())]
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(LOOK, left))
        samples.append(process.sample(pids, time.monotonic()))
    return samples
