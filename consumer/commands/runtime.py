"""What every process of ours has around its work: log and metrics, health, signals, an end that comes for certain."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version

import structlog
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from consumer.errors import Upstream
from consumer.hindsight.client import HindsightOperation
from consumer.kafka.options import client_options
from consumer.observability.engine_log import log_signals, warn_once
from consumer.observability.health import Check, all_of, liveness, readiness
from consumer.observability.health import Limits as HealthLimits
from consumer.observability.http_server import serving
from consumer.observability.lane_gauges import LaneGauges, Pulse
from consumer.observability.logs import configure_logging
from consumer.observability.prometheus import Metrics
from consumer.observability.watchdog import Watchdog, thread_stack
from consumer.paperclip.models import LOOKUPS
from consumer.settings.model import Settings
from consumer.stream.hooks import EngineEvent, Hook
from consumer.stream.lane import Lane

VERSION = version("paperclip-memory")
USER_AGENT = f"paperclip-memory/{VERSION}"
EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Process:
    """What all parts of one process share: settings, log and metrics."""

    settings: Settings
    registry: CollectorRegistry
    metrics: Metrics
    notify: Hook
    warn: Callable[..., None]


def start_process(settings: Settings, lanes: Sequence[str], paperclip_operations: Iterable[str] = LOOKUPS) -> Process:
    """Logging and metrics of a process that runs these lanes, and asks these operations of Paperclip.

    Raises:
        SettingsError: a file that a setting names holds nothing that can be used.
    """
    client_options(settings)  # reads the TLS files: wrong ones end the process, rather than look like Kafka's absence
    configure_logging(settings.log_format, settings.log_level)
    rarely_collect_garbage()
    log = structlog.get_logger()
    registry = CollectorRegistry()
    metrics = Metrics(
        registry,
        version=VERSION,
        lanes=lanes,
        operations={Upstream.HINDSIGHT: HindsightOperation, Upstream.PAPERCLIP: paperclip_operations},
    )
    log_signal = log_signals(log)

    def notify(signal_: EngineEvent) -> None:
        metrics.notify(signal_)
        log_signal(signal_)

    return Process(settings, registry, metrics, notify, warn_once(log))


def rarely_collect_garbage() -> None:
    """Keep the garbage collector off what is loaded, and let it look at the rest less often.

    By default it walks through the records that wait, again and again, for up to a fifth of all CPU time; nothing of a
    record's way is in a cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@contextmanager
def serve_observability(
    process: Process, port: str, *, lanes: Sequence[Lane] = (), ready: Iterable[Check] = ()
) -> Iterator[None]:
    """Serve metrics and health of this process until the block ends, and watch that it makes progress.

    Args:
        port: the name of the port's setting.
        lanes: that run here; they must take part in their groups before the process is ready.
        ready: what else must hold for `/readyz`; other threads call these.
    """
    settings = process.settings
    pulse = Pulse(lambda: [lane.state() for lane in lanes])
    live = liveness(pulse, HealthLimits())
    main_thread = threading.get_ident()
    if lanes:
        process.registry.register(LaneGauges(lambda: pulse.seen.lanes))
        ready = [readiness(pulse, tuple(lane.name for lane in lanes)), *ready]

    def stack() -> str:
        return "\n".join([thread_stack(main_thread), *(lane.longest_stack() for lane in lanes)])

    def tell(reason: str, seconds: float, where: str) -> None:
        structlog.get_logger().error("no progress: outcome the process", reason=reason, seconds=seconds, stack=where)

    # Nothing needs cleaning up yet, so the process may end abruptly; `wait_for_shutdown` replaces this. Without a
    # handler the kernel would not deliver the signal to a container's first process.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_INTERRUPTED))
    with ExitStack() as within:
        host, number = settings.worker_host, getattr(settings, port)
        bound = within.enter_context(
            serving(host, number, registry=process.registry, live=live, ready=all_of(*ready), setting=port)
        )
        running = {"lanes": [lane.name for lane in lanes]} if lanes else {}
        structlog.get_logger().info("serving", metrics=f"http://{host}:{bound}/metrics", **running)
        beating = asyncio.create_task(pulse.run(), name="pulse")
        within.callback(beating.cancel)
        within.enter_context(Watchdog(live, stack, tell).watching())
        yield


async def wait_for_shutdown(tasks: Collection["asyncio.Task[None]"]) -> None:
    """Return on SIGTERM or SIGINT, or when one of these has ended; a second signal ends the process at once."""
    told = asyncio.Event()

    def tell() -> None:
        if told.is_set():
            os._exit(EXIT_INTERRUPTED)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextmanager
def shutdown_deadline(timeout: float) -> Iterator[None]:
    """End the process if the block takes longer, even outside the event loop: no supervisor need kill it."""
    structlog.get_logger().info("stopping", within_seconds=timeout)
    timer = threading.Timer(timeout, os._exit, (EXIT_INTERRUPTED,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reveal(value: SecretStr | None) -> str | None:
    """A secret's text."""
    return None if value is None else value.get_secret_value()
