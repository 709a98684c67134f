"""The only place where things are wired together: settings in, running processes out."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from consumer.check import Mark, Probe, log_probes, passed, probe_all, settings_probes
from consumer.check import as_json as render_json
from consumer.check import as_text as render_text
from consumer.dispatcher import COMMENT_HANDLERS, RUN_HANDLERS, Dispatcher
from consumer.errors import SettingsError, Upstream, UpstreamDown
from consumer.handlers.needs import Needs
from consumer.hindsight.client import HindsightClient, HindsightOperation
from consumer.http import Send
from consumer.kafka import consumer_options, producer
from consumer.observability.health import Limits as HealthLimits
from consumer.observability.health import liveness, readiness
from consumer.observability.lanes import LaneGauges, Pulse
from consumer.observability.logs import configure_logging
from consumer.observability.recorder import Metrics
from consumer.observability.server import serving
from consumer.observability.signal_log import log_signals, warn_once
from consumer.observability.watchdog import Watchdog, thread_stack
from consumer.paperclip.client import PaperclipClient, PaperclipOperation
from consumer.publisher import Publisher, TooLarge
from consumer.recalls import TopicRecalls
from consumer.senders import open_sender
from consumer.settings import Settings, load_settings
from consumer.settings_text import unknown_variables
from consumer.settings_types import LogFormat, LogLevel
from consumer.stream.core import LaneCore
from consumer.stream.lane import Lane, LaneSettings
from consumer.stream.pressure import Limits
from consumer.stream.retry import RetryPolicy
from consumer.stream.signals import Notify, Signal
from consumer.stream.source import KafkaSource
from consumer.topics import TopicState, ensure_topics

VERSION = version("paperclip-memory")
USER_AGENT = f"paperclip-memory/{VERSION}"
LANES = ("recall", "retain")
EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130


def fan_out(*notifies: Notify) -> Notify:
    """One `Notify` that tells several."""

    def notify(signal_: Signal) -> None:
        for each in notifies:
            each(signal_)

    return notify


@dataclass(frozen=True, slots=True)
class Process:
    """What all parts of one process share: settings, log and metrics."""

    settings: Settings
    registry: CollectorRegistry
    metrics: Metrics
    notify: Notify
    warn: Callable[..., None]


def start_process(
    settings: Settings, lanes: Sequence[str], paperclip_operations: Iterable[str] = PaperclipOperation
) -> Process:
    """Logging and metrics of a process that runs these lanes, and asks these operations of Paperclip."""
    configure_logging(settings.log_format, settings.log_level)
    log = structlog.get_logger()
    registry = CollectorRegistry()
    metrics = Metrics(
        registry,
        version=VERSION,
        lanes=lanes,
        operations={Upstream.HINDSIGHT: HindsightOperation, Upstream.PAPERCLIP: paperclip_operations},
    )
    return Process(settings, registry, metrics, fan_out(metrics.notify, log_signals(log)), warn_once(log))


@asynccontextmanager
async def open_clients(
    settings: Settings, limit: int, measured: Callable[[Send, Upstream], Send] = lambda send, _: send
) -> AsyncIterator[tuple[HindsightClient, PaperclipClient | None]]:
    """Clients with senders of their own, at most `limit` requests in flight to each service."""

    async def open_measured(upstream: Upstream) -> Send:
        return measured(await stack.enter_async_context(open_sender(settings.http_backend, limit)), upstream)

    async with AsyncExitStack() as stack:
        hindsight = HindsightClient(
            await open_measured(Upstream.HINDSIGHT),
            settings.hindsight_api_url,
            key=secret(settings.hindsight_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
            probe_timeout=settings.health_timeout,
        )
        paperclip = None
        if settings.paperclip_api_url is not None:
            paperclip = PaperclipClient(
                await open_measured(Upstream.PAPERCLIP),
                settings.paperclip_api_url,
                key=secret(settings.paperclip_api_key),
                user_agent=USER_AGENT,
                timeout=settings.http_timeout,
                probe_timeout=settings.health_timeout,
            )
        yield hindsight, paperclip


async def probe(settings: Settings) -> list[Probe]:
    """Probe Kafka, Hindsight and Paperclip."""
    async with open_clients(settings, limit=4) as (hindsight, paperclip):
        return await probe_all(settings, hindsight, paperclip)


async def probe_at_start(process: Process) -> bool:
    """Log what a process depends on, before it starts; True if nothing failed."""
    log = structlog.get_logger()
    for line in unknown_variables():
        log.warning(line)
    probes = await probe(process.settings)
    log_probes(log, probes)
    return passed(probes)


async def run_check(*, as_json: bool) -> int:
    """Print what `check` finds; the exit code."""
    show = render_json if as_json else render_text
    try:
        settings = load_settings()
    except SettingsError as error:
        print(show(settings_probes(error)))  # noqa: T201 - this is what the command is for
        return EXIT_SETTINGS
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    probes = [*(Probe("settings", Mark.WARNED, line) for line in unknown_variables()), *await probe(settings)]
    print(show(probes))  # noqa: T201
    return 0 if passed(probes) else EXIT_FAILED


async def create_topics(settings: Settings) -> int:
    """Create what is missing, and print how each topic stands; the exit code."""
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    try:
        reports = await ensure_topics(settings)
    except UpstreamDown as error:
        print(f"✗ {error}")  # noqa: T201
        return EXIT_FAILED
    for report in reports:
        details = f": {'; '.join(report.details)}" if report.details else ""
        print(f"{report.state.value} {report.name}{details}")  # noqa: T201
    return EXIT_FAILED if any(report.state is TopicState.REFUSED for report in reports) else 0


def lane_consumer(settings: Settings, group: str) -> AIOKafkaConsumer:
    """A lane's consumer, not started. Its budget for a rebalance covers the drain, the commit and the cancelling."""
    return AIOKafkaConsumer(
        **consumer_options(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        partition_assignment_strategy=(RangePartitionAssignor,),
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=256 * 1024,
        fetch_max_bytes=4 * 1024 * 1024,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=2_000,
        rebalance_timeout_ms=int((settings.drain_timeout + 12) * 1000),
        metadata_max_age_ms=60_000,
    )


@asynccontextmanager
async def open_lane(process: Process, name: str) -> AsyncIterator[Lane]:
    """A lane with everything it uses, shared with no other lane."""
    settings = process.settings
    topic, group, limit, handlers = {
        "recall": (settings.topic_agent_runs, settings.group_recall, settings.recall_in_flight, RUN_HANDLERS),
        "retain": (settings.topic_issue_comments, settings.group_retain, settings.retain_in_flight, COMMENT_HANDLERS),
    }[name]
    publisher = Publisher(partial(producer, settings))
    async with open_clients(settings, limit, process.metrics.measured) as (hindsight, paperclip):
        recalls = TopicRecalls(publisher, settings.topic_recalls)
        needs = Needs(settings.rules(), hindsight, paperclip, recalls, time.time, process.warn)
        retry = RetryPolicy(
            settings.max_attempts, settings.retry_first_delay, settings.retry_max_delay, settings.forget_deadline
        )
        try:
            yield Lane(
                LaneSettings(name, settings.topic_dead_letters, settings.drain_timeout, TooLarge),
                LaneCore(limit, retry, Limits()),
                KafkaSource(partial(lane_consumer, settings, group), [topic]),
                Dispatcher(needs, handlers).resolve,
                publisher.publish,
                process.notify,
            )
        finally:
            await publisher.close()


async def run_worker(settings: Settings, lanes: Sequence[str], *, strict: bool) -> int:
    """Run lanes until SIGTERM or SIGINT; a second one ends the process at once.

    Args:
        strict: end with 1 when a probe fails at the start.

    Returns:
        the exit code.
    """
    process = start_process(settings, lanes)
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(open_lane(process, name)) for name in lanes]
        stack.enter_context(observed(process, running))
        if not await probe_at_start(process) and strict:
            return EXIT_FAILED
        await run_until_told(running, settings.shutdown_timeout)
    return 0


@contextmanager
def observed(process: Process, lanes: Sequence[Lane]) -> Iterator[None]:
    """Serve metrics and health of these lanes, and watch that they make progress."""
    settings = process.settings
    pulse = Pulse(lambda: [lane.state() for lane in lanes])
    process.registry.register(LaneGauges(lambda: pulse.seen.lanes))
    live = liveness(pulse, HealthLimits())
    ready = readiness(pulse, tuple(lane.name for lane in lanes))
    main_thread = threading.get_ident()

    def stack() -> str:
        return "\n".join([thread_stack(main_thread), *(lane.stuck_stack() for lane in lanes)])

    def tell(reason: str, seconds: float, where: str) -> None:
        structlog.get_logger().error("no progress: ending the process", reason=reason, seconds=seconds, stack=where)

    with ExitStack() as within:
        host, port = settings.worker_host, settings.worker_port
        bound = within.enter_context(
            serving(host, port, registry=process.registry, live=live, ready=ready, setting="worker_port")
        )
        structlog.get_logger().info(
            "serving", metrics=f"http://{host}:{bound}/metrics", lanes=[each.name for each in lanes]
        )
        beating = asyncio.create_task(pulse.run(), name="pulse")
        within.callback(beating.cancel)
        within.enter_context(Watchdog(live, stack, tell).watching())
        yield


async def run_until_told(lanes: Sequence[Lane], shutdown_timeout: float) -> None:
    """Run lanes until a signal, or until one of them fails; then stop them all within `shutdown_timeout` seconds.

    Raises:
        Exception: what a lane failed with: a bug, so the process must end and be started again.
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        if told.is_set():
            os._exit(EXIT_INTERRUPTED)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell)
    tasks = [asyncio.create_task(lane.run(), name=lane.name) for lane in lanes]
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    structlog.get_logger().info("stopping", within_seconds=shutdown_timeout)
    # Whatever hangs, even outside the event loop: the supervisor's SIGKILL must not be needed.
    last_resort = threading.Timer(shutdown_timeout, os._exit, (EXIT_INTERRUPTED,))
    last_resort.daemon = True
    last_resort.start()
    await asyncio.gather(*(lane.stop(shutdown_timeout * 0.8) for lane in lanes))
    await asyncio.gather(*tasks)


def secret(value: SecretStr | None) -> str | None:
    """A secret's text."""
    return None if value is None else value.get_secret_value()
