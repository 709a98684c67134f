"""The systems under test: the command line of each process."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks import events
from benchmarks.testbed import PEERS, Sink, Testbed
from consumer.embedded.supervise import answers, free_port
from demo.services import command, environment


@dataclass(frozen=True, slots=True)
class Launch:
    """How one process is started. `env` None inherits ours; `ready` is called until it returns True."""

    command: list[str]
    env: Mapping[str, str] | None = None
    ready: Callable[[], bool] = field(default=lambda: True)


@dataclass(frozen=True, slots=True)
class System:
    """A system under test.

    Attributes:
        launch: the command of one process of a group, with so many requests in flight.
        sequential: always one request in flight.
    """

    name: str
    launch: Callable[[Testbed, Sink, str, int], Launch]
    sequential: bool = False


def worker(backend: str, *, name: str = "", lane: str | None = "retain", **settings: str) -> System:
    """`paperclip-memory worker` as its users start it.

    Args:
        lane: None runs both, as a worker does by default.
        settings: further settings, named without the prefix.
    """

    def launch(testbed: Testbed, sink: Sink, group: str, in_flight: int) -> Launch:
        port = free_port()
        env = {
            "KAFKA_BOOTSTRAP_SERVERS": testbed.bootstrap,
            "HINDSIGHT_API_URL": sink.url,
            "HTTP_BACKEND": backend,
            "RETAIN_IN_FLIGHT": str(in_flight),
            "GROUP_RETAIN": group,
            "GROUP_RECALL": f"{group}-recall",
            "TOPIC_ISSUE_COMMENTS": events.COMMENTS,
            "TOPIC_AGENT_RUNS": events.RUNS,
            "TOPIC_RECALLS": events.RECALLS,
            "TOPIC_DEAD_LETTERS": events.DEAD_LETTERS,
            "WORKER_PORT": str(port),
            **settings,
        }
        words = [command(), "worker", *([] if lane is None else ["--lane", lane])]
        return Launch(words, environment(env), lambda: answers(f"http://127.0.0.1:{port}/readyz"))

    return System(name or f"paperclip-memory, {backend}", launch)


def transport_alone(backend: str) -> System:
    """Our HTTP transport alone: no Kafka, no handlers."""

    def launch(_testbed: Testbed, sink: Sink, _group: str, in_flight: int) -> Launch:
        return Launch([sys.executable, "-m", "benchmarks.transport_alone", sink.url, backend, str(in_flight)])

    return System(f"{backend} alone, no Kafka", launch)


def _raw(_testbed: Testbed, sink: Sink, _group: str, in_flight: int) -> Launch:
    return Launch([sys.executable, "-m", "benchmarks.raw_load", str(sink.port), str(in_flight)])


def _plain(testbed: Testbed, sink: Sink, group: str, _in_flight: int) -> Launch:
    return Launch([str(testbed.python), str(PEERS / "plain.py"), testbed.bootstrap, events.COMMENTS, group, sink.url])


def _streams(name: str, kind: str, transport: str) -> System:
    def launch(testbed: Testbed, sink: Sink, group: str, in_flight: int) -> Launch:
        arguments = [kind, transport, testbed.bootstrap, events.COMMENTS, group, sink.url, str(in_flight)]
        return Launch([str(testbed.python), str(PEERS / "streams.py"), *arguments])

    return System(name, launch)


def _java(testbed: Testbed, sink: Sink, group: str, in_flight: int) -> Launch:
    assert testbed.classpath is not None
    arguments = [testbed.bootstrap, events.COMMENTS, group, sink.url, str(in_flight)]
    return Launch(["java", "-cp", testbed.classpath, "ParallelConsumer", *arguments])


RAW = System("bare sockets", _raw)
PLAIN = System("aiokafka, a plain loop", _plain, sequential=True)
FASTSTREAM = _streams("FastStream, httpx", "workers", "httpx")
FASTSTREAM_AIOHTTP = _streams("FastStream, aiohttp transport", "workers", "aiohttp")
CONCURRENT = _streams("faststream-concurrent-aiokafka, aiohttp transport", "middleware", "aiohttp")
PARALLEL_CONSUMER = System("Confluent's parallel consumer, Vert.x (Java)", _java)
