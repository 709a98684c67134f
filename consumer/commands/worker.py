"""Wiring of the worker, `check` and `topics`; the modules beside it wire the other commands. Nothing else wires."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from consumer.commands.probes import Mark, Probe, log_probes, passed, probe_all, settings_probes
from consumer.commands.probes import as_json as render_json
from consumer.commands.probes import as_text as render_text
from consumer.commands.runtime import (
    EXIT_FAILED,
    EXIT_SETTINGS,
    USER_AGENT,
    Process,
    reveal,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.dispatcher import COMMENT_HANDLERS, RUN_HANDLERS, Dispatcher
from consumer.errors import SettingsError, Upstream, UpstreamDown
from consumer.handlers.context import Needs
from consumer.hindsight.client import HindsightClient
from consumer.http.backends import open_transport
from consumer.http.transport import Transport
from consumer.kafka.options import client_options, consumer_options, producer
from consumer.kafka.producer import Publisher, RecordTooLarge
from consumer.kafka.topics import TopicState, ensure_topics
from consumer.observability.logs import configure_logging
from consumer.observability.tracing import tracing
from consumer.paperclip.client import PaperclipClient
from consumer.recalls import TopicRecalls
from consumer.settings.model import Settings, load_settings
from consumer.settings.reference import unknown_variables
from consumer.settings.types import LogFormat, LogLevel
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.executor import LaneSettings
from consumer.stream.lane import Lane
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import LaneScheduler
from consumer.stream.source import KafkaSource

LANES = ("recall", "retain")


@asynccontextmanager
async def open_clients(
    settings: Settings, limit: int, measured: Callable[[Transport, Upstream], Transport] = lambda send, _: send
) -> AsyncIterator[tuple[HindsightClient, PaperclipClient | None]]:
    """Clients with senders of their own, at most `limit` requests in flight to each service."""

    async def open_measured(upstream: Upstream) -> Transport:
        return measured(await stack.enter_async_context(open_transport(settings.http_backend, limit)), upstream)

    async with AsyncExitStack() as stack:
        hindsight = HindsightClient(
            await open_measured(Upstream.HINDSIGHT),
            settings.hindsight_api_url,
            key=reveal(settings.hindsight_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
            probe_timeout=settings.health_timeout,
        )
        paperclip = None
        if settings.paperclip_api_url is not None:
            paperclip = PaperclipClient(
                await open_measured(Upstream.PAPERCLIP),
                settings.paperclip_api_url,
                key=reveal(settings.paperclip_api_key),
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
        client_options(settings)  # reads the TLS files
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
    traces = tracing()

    def measured(send: Transport, upstream: Upstream) -> Transport:
        counted = process.metrics.measured(send, upstream)
        return traces.sends(counted, upstream) if traces else counted

    async with open_clients(settings, limit, measured) as (hindsight, paperclip):
        recalls = TopicRecalls(publisher, settings.topic_recalls)
        needs = Needs(settings.rules(), hindsight, paperclip, recalls, time.time, process.warn)
        retry = RetryPolicy(
            settings.max_attempts, settings.retry_first_delay, settings.retry_max_delay, settings.forget_deadline
        )
        resolve = Dispatcher(needs, handlers).resolve
        try:
            yield Lane(
                LaneSettings(name, settings.topic_dead_letters, settings.drain_timeout, RecordTooLarge),
                LaneScheduler(limit, retry, BackpressureLimits()),
                KafkaSource(partial(lane_consumer, settings, group), [topic]),
                traces.jobs(resolve, name) if traces else resolve,
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
        stack.enter_context(serve_observability(process, "worker_port", lanes=running))
        if not await probe_at_start(process) and strict:
            return EXIT_FAILED
        tasks = [asyncio.create_task(lane.run(), name=lane.name) for lane in running]
        await wait_for_shutdown(tasks)
        with shutdown_deadline(settings.shutdown_timeout):
            await stop_lanes(running, settings.shutdown_timeout)
            await asyncio.gather(*tasks)  # raises what a lane failed with: a bug of ours
    return 0


async def stop_lanes(lanes: Sequence[Lane], shutdown_timeout: float) -> None:
    """Drain, commit and let go, in most of the time that the process has."""
    await asyncio.gather(*(lane.stop(shutdown_timeout * 0.8) for lane in lanes))
