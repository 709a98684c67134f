"""What is measured: each subject is the command line of one of its processes."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks import events
from benchmarks.stand import PEERS, Sink, Stand
from consumer.embedded.supervise import answers, free_port
from demo.ours import command, environment


@dataclass(frozen=True, slots=True)
class Launch:
    """How one process is started. `env` None passes ours on; `ready` is asked until it says yes."""

    command: list[str]
    env: Mapping[str, str] | None = None
    ready: Callable[[], bool] = field(default=lambda: True)


@dataclass(frozen=True, slots=True)
class Subject:
    """One way to do the work.

    Attributes:
        launch: makes one process of a group, with so many requests in flight.
        sequential: it has one request in flight, whatever it is told.
    """

    name: str
    launch: Callable[[Stand, Sink, str, int], Launch]
    sequential: bool = False


def ours(backend: str, *, name: str = "", lane: str | None = "retain", **settings: str) -> Subject:
    """`paperclip-memory worker` as its users start it.

    Args:
        lane: None runs both, as a worker does by default.
        settings: more of them, without the prefix.
    """

    def launch(stand: Stand, sink: Sink, group: str, in_flight: int) -> Launch:
        port = free_port()
        env = {
            "KAFKA_BOOTSTRAP_SERVERS": stand.bootstrap,
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
        line = [command(), "worker", *([] if lane is None else ["--lane", lane])]
        return Launch(line, environment(env), lambda: answers(f"http://127.0.0.1:{port}/readyz"))

    return Subject(name or f"paperclip-memory, {backend}", launch)


def sender(backend: str) -> Subject:
    """Our sender alone: no Kafka, no handlers."""

    def launch(_stand: Stand, sink: Sink, _group: str, in_flight: int) -> Launch:
        return Launch([sys.executable, "-m", "benchmarks.sender_alone", sink.url, backend, str(in_flight)])

    return Subject(f"{backend} alone, no Kafka", launch)


def _raw(_stand: Stand, sink: Sink, _group: str, in_flight: int) -> Launch:
    return Launch([sys.executable, "-m", "benchmarks.raw_load", str(sink.port), str(in_flight)])


def _plain(stand: Stand, sink: Sink, group: str, _in_flight: int) -> Launch:
    return Launch([str(stand.python), str(PEERS / "plain.py"), stand.bootstrap, events.COMMENTS, group, sink.url])


def _streams(name: str, kind: str, transport: str) -> Subject:
    def launch(stand: Stand, sink: Sink, group: str, in_flight: int) -> Launch:
        what = [kind, transport, stand.bootstrap, events.COMMENTS, group, sink.url, str(in_flight)]
        return Launch([str(stand.python), str(PEERS / "streams.py"), *what])

    return Subject(name, launch)


def _java(stand: Stand, sink: Sink, group: str, in_flight: int) -> Launch:
    assert stand.classpath is not None
    what = [stand.bootstrap, events.COMMENTS, group, sink.url, str(in_flight)]
    return Launch(["java", "-cp", stand.classpath, "ParallelConsumer", *what])


RAW = Subject("bare sockets", _raw)
PLAIN = Subject("aiokafka, a plain loop", _plain, sequential=True)
FASTSTREAM = _streams("FastStream, httpx", "workers", "httpx")
FASTSTREAM_AIOHTTP = _streams("FastStream, aiohttp transport", "workers", "aiohttp")
CONCURRENT = _streams("faststream-concurrent-aiokafka, aiohttp transport", "middleware", "aiohttp")
PARALLEL_CONSUMER = Subject("Confluent's parallel consumer, Vert.x (Java)", _java)
