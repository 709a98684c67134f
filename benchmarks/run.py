"""One run: start a subject, let it settle, watch it, end it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import process
from benchmarks.measure import Line, Sample, cpu_at, middle, percentile, turnarounds, within
from benchmarks.stand import Sink, Stand
from benchmarks.subjects import Subject
from consumer.embedded.supervise import ServerError, wait_until

START_DEADLINE = 60.0
LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is; `seconds` of it are measured, after `settle`."""

    in_flight: int
    workers: int = 1
    seconds: float = 8.0
    settle: float = 2.0

    def quick(self) -> "Size":
        """The same, short."""
        return replace(self, seconds=2.5, settle=1.0)


@contextmanager
def running(subject: Subject, stand: Stand, sink: Sink, size: Size) -> Iterator[list[int]]:
    """The subject's processes, ready, one after another so that each rebalance is over before the next begins."""
    group, children = stand.group(), list[subprocess.Popen[bytes]]()
    log = stand.logs / f"{group}.log"
    try:
        for _ in range(size.workers):
            launch = subject.launch(stand, sink, group, size.in_flight)
            with log.open("ab") as out:
                child = subprocess.Popen(
                    launch.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=launch.env, cwd=Path.cwd()
                )
            children.append(child)
            wait_until(lambda: child.poll() is not None or launch.ready(), START_DEADLINE)  # noqa: B023
        yield [child.pid for child in children]
    except OSError as error:  # its /proc is gone, or the sink's port
        raise ServerError(f"running {subject.name}", str(error), log=log) from error
    finally:
        for child in children:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.wait()


def measure(bench: str, subject: Subject, stand: Stand, sink: Sink, size: Size) -> Line:
    """Run the subject once and say how it did."""
    load = process.load()
    sink.taken()
    with running(subject, stand, sink, size) as pids:
        if not wait_until(lambda: sink.count() > 0, START_DEADLINE):
            raise OSError(f"no request came within {START_DEADLINE:g} s")
        time.sleep(size.settle)
        start = time.monotonic()
        samples = watch(pids, size.seconds)
        times, connections = sink.taken()
    in_flight = 1 if subject.sequential else size.in_flight
    window = middle(start, start + size.seconds)
    inside = within(times, window)
    count = inside.stop - inside.start
    rate = count / window.seconds
    cpu = cpu_at(samples, window.end) - cpu_at(samples, window.start)
    gaps = turnarounds(times[inside], connections[inside])
    return Line(
        bench=bench,
        subject=subject.name,
        in_flight=in_flight,
        sink_ms=sink.retain_ms,
        workers=size.workers,
        events_per_second=rate,
        of_ideal=rate * sink.retain_ms / 1000 / (in_flight * size.workers),
        cpu_us_per_event=cpu * 1e6 / max(1, count),
        rss_mb=max(each.rss for each in samples),
        p50_ms=percentile(gaps, 50) * 1000,
        p99_ms=percentile(gaps, 99) * 1000,
        load=load,
    )


def watch(pids: Sequence[int], seconds: float) -> list[Sample]:
    """Look at the processes for so long."""
    end = time.monotonic() + seconds
    samples = [process.sample(pids, time.monotonic())]
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(LOOK, left))
        samples.append(process.sample(pids, time.monotonic()))
    return samples
