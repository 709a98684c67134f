"""The testbed: Kafka with the records in it, the sink, the peers' environments."""

import http.client
import itertools
import json
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import events
from consumer.embedded import packages
from consumer.embedded.directories import cache_directory, exclusive_lock
from consumer.embedded.supervise import ServerError, ServerProcess, free_port, listening
from tests.support import kafka_jvm

HERE = Path(__file__).parent
PEERS = HERE / "peers"
JAVA = PEERS / "parallel-consumer"

Say = Callable[[str], None]
"""Takes one line that says what goes on."""


class Sink:
    """The sink's process. Latencies in milliseconds."""

    def __init__(self, retain: float, log: Path, recall: float = 0, paperclip: float = 0) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.retain_ms = retain
        latencies = [str(latency) for latency in (retain, recall, paperclip)]
        self.server = ServerProcess(
            step="starting the sink",
            command=[sys.executable, "-m", "benchmarks.sink", str(self.port), *latencies],
            ready=lambda: listening(self.port),
            log=log,
            cwd=HERE.parent,
        )

    def count(self) -> int:
        """Retains that arrived since the last `take`."""
        count: int = json.loads(self._get("/count"))["count"]
        return count

    def take(self) -> tuple[Sequence[float], Sequence[int]]:
        """The arrival time and connection of each retain since the last call."""
        raw = self._get("/taken")
        times, connections = array("d"), array("I")
        split = len(raw) * times.itemsize // (times.itemsize + connections.itemsize)
        times.frombytes(raw[:split])
        connections.frombytes(raw[split:])
        return times, connections

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


@dataclass(slots=True)
class Testbed:
    """What every run uses.

    Attributes:
        python: of the Python peers.
        classpath: of the Java peer; None if there is no JDK or no Maven.
        quick: run less often and shorter.
    """

    bootstrap: str
    logs: Path
    python: Path
    classpath: str | None
    quick: bool
    say: Say
    _groups: Iterator[int] = field(default_factory=itertools.count)

    def group(self) -> str:
        """A consumer group that was not used before."""
        return f"bench-{next(self._groups)}"

    @contextmanager
    def sink(self, retain: float, recall: float = 0, paperclip: float = 0) -> Iterator[Sink]:
        """A new sink with these latencies in milliseconds."""
        sink = Sink(retain, self.logs / "sink.log", recall, paperclip)
        sink.server.start()
        try:
            yield sink
        finally:
            sink.server.kill()


@contextmanager
def open_testbed(say: Say, *, quick: bool, records: int) -> Iterator[Testbed]:
    """Set up the testbed and take it down at the end."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as temporary:
        logs = Path(temporary)
        say("installing the peers")
        python = packages.environment("benchmarks", PEERS / "requirements.txt", None, lambda _: None) / "bin/python"
        classpath = _java(say)
        say("starting Apache Kafka")
        with kafka_jvm.JvmKafka(logs) as kafka:
            say(f"producing {records} records")
            events.fill(kafka.bootstrap_servers, events.COMMENTS, events.comments(records))
            for topic in (events.RUNS, events.RECALLS, events.DEAD_LETTERS):
                events.fill(kafka.bootstrap_servers, topic, ())
            yield Testbed(kafka.bootstrap_servers, logs, python, classpath, quick, say)


def _java(say: Say) -> str | None:
    """The classpath of the Java peer, fetched and compiled once."""
    with exclusive_lock("parallel-consumer"):
        path = cache_directory() / "parallel-consumer"
        path.mkdir(exist_ok=True)
        log = path / "build.log"
        fetch = ["mvn", "--batch-mode", "--no-transfer-progress", "-f", str(JAVA / "pom.xml")]
        fetch += ["dependency:copy-dependencies", f"-DoutputDirectory={path}/libs"]
        compile_ = ["javac", "-cp", f"{path}/libs/*", "-d", str(path), str(JAVA / "ParallelConsumer.java")]
        try:
            if not (path / "libs").exists():
                say("fetching Confluent's parallel consumer")
                _run(fetch, log)
            _run(compile_, log)
        except FileNotFoundError as error:
            say(f"without Confluent's parallel consumer: there is no {error.filename}")
            return None
        return f"{path}:{path}/libs/*"


def _run(command: list[str], log: Path) -> None:
    with log.open("ab") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise ServerError("building the Java peer", f"exit code {done.returncode}", command=command, log=log)
