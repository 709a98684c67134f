"""Process runtime: logging, metrics, health, signals, forced shutdown."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from consumer.commands.clients import VERSION
from consumer.errors import ExitCode, Upstream
from consumer.hindsight.client import HindsightOperation
from consumer.kafka.options import client_options
from consumer.observability.engine_log import log_engine_events, warn_once
from consumer.observability.health import Check, LivenessLimits, all_of, liveness, readiness
from consumer.observability.http_server import serving
from consumer.observability.lane_gauges import Heartbeat, LaneGauges
from consumer.observability.logs import configure_logging
from consumer.observability.prometheus import Metrics
from consumer.observability.watchdog import Watchdog, thread_stack
from consumer.paperclip.models import LOOKUPS
from consumer.settings.model import Settings
from consumer.stream.hooks import EngineEvent, Hook
from consumer.stream.lane import Lane


@dataclass(frozen=True, slots=True)
class Process:
    """Settings, logging and metrics, shared by all parts of one process."""

    settings: Settings
    registry: CollectorRegistry
    metrics: Metrics
    notify: Hook
    warn: Callable[..., None]


def start_process(settings: Settings, lanes: Sequence[str], paperclip_operations: Iterable[str] = LOOKUPS) -> Process:
    """Set up logging and metrics.

    Args:
        lanes: the lanes that this process runs.
        paperclip_operations: the requests that it sends to Paperclip; the label values of their metrics.

    Raises:
        SettingsError: a TLS file cannot be used.
    """
    client_options(settings)  # a wrong TLS file must end the process, not look like an unreachable Kafka
    configure_logging(settings.log_format, settings.log_level)
    tune_garbage_collection()
    log = structlog.get_logger()
    registry = CollectorRegistry()
    metrics = Metrics(
        registry,
        version=VERSION,
        lanes=lanes,
        operations={Upstream.HINDSIGHT: HindsightOperation, Upstream.PAPERCLIP: paperclip_operations},
    )
    log_event = log_engine_events(log)

    def notify(signal_: EngineEvent) -> None:
        metrics.notify(signal_)
        log_event(signal_)

    return Process(settings, registry, metrics, notify, warn_once(log))


def tune_garbage_collection() -> None:
    """Run Python's garbage collector seldom, and never over the modules that are loaded by now.

    With Python's own thresholds the collector walks again and again through records that wait and through MCP calls in
    progress. That took a fifth of a worker's CPU time, and half of it in `tools` with 200 calls in flight. Few of these
    objects are in cycles, so reference counting frees them anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@contextmanager
def serve_observability(
    process: Process, port: str, *, lanes: Sequence[Lane] = (), ready: Iterable[Check] = ()
) -> Iterator[None]:
    """Serve metrics and health until the block ends, and end the process if it stalls.

    Args:
        port: the name of the port's setting.
        lanes: the lanes that run here; `/readyz` fails until each has joined its group.
        ready: further checks of `/readyz`; other threads call them.
    """
    settings = process.settings
    heartbeat = Heartbeat(lambda: [lane.state() for lane in lanes])
    live = liveness(heartbeat, LivenessLimits())
    main_thread = threading.get_ident()
    if lanes:
        process.registry.register(LaneGauges(lambda: heartbeat.snapshot.lanes))
        ready = [readiness(heartbeat, tuple(lane.name for lane in lanes)), *ready]

    def stack() -> str:
        return "\n".join([thread_stack(main_thread), *(lane.longest_stack() for lane in lanes)])

    def tell(reason: str, seconds: float, where: str) -> None:
        structlog.get_logger().error("no progress: ending the process", reason=reason, seconds=seconds, stack=where)

    # Nothing needs cleaning up yet, so the process may end abruptly; `wait_for_shutdown` replaces this. Without a
    # handler the kernel would not deliver the signal to a container's first process.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ExitCode.INTERRUPTED))
    with ExitStack() as within:
        host, number = settings.worker_host, getattr(settings, port)
        bound = within.enter_context(
            serving(host, number, registry=process.registry, live=live, ready=all_of(*ready), setting=port)
        )
        running = {"lanes": [lane.name for lane in lanes]} if lanes else {}
        structlog.get_logger().info("serving", metrics=f"http://{host}:{bound}/metrics", **running)
        beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
        within.callback(beating.cancel)
        within.enter_context(Watchdog(live, stack, tell).watching())
        yield


async def wait_for_shutdown(tasks: Collection["asyncio.Task[None]"]) -> None:
    """Return on SIGTERM or SIGINT, or when one of these tasks ends. A second signal ends the process at once."""
    signalled = asyncio.Event()

    def on_signal() -> None:
        if signalled.is_set():
            os._exit(ExitCode.INTERRUPTED)
        signalled.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    waiting = asyncio.create_task(signalled.wait())
    await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextmanager
def shutdown_deadline(timeout: float) -> Iterator[None]:
    """End the process if the block takes longer than `timeout` seconds, even if the event loop hangs."""
    structlog.get_logger().info("stopping", within_seconds=timeout)
    timer = threading.Timer(timeout, os._exit, (ExitCode.INTERRUPTED,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])
