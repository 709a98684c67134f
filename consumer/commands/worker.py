"""`paperclip-memory worker`."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

from consumer.commands.check import probe_at_start
from consumer.commands.clients import open_clients
from consumer.commands.key_watch import watch_key
from consumer.commands.runtime import Process, serve_observability, shutdown_deadline, start_process, wait_for_shutdown
from consumer.dispatcher import COMMENT_HANDLERS, RUN_HANDLERS, Dispatcher, fallback_key
from consumer.errors import ExitCode, Upstream
from consumer.handlers.context import HandlerContext
from consumer.http.transport import Transport
from consumer.kafka.options import lane_consumer, producer
from consumer.kafka.producer import Publisher, RecordTooLarge
from consumer.observability.tracing import tracing
from consumer.recalls import RecallPublisher
from consumer.settings.model import Settings
from consumer.stream.backpressure import BackpressureLimits
from consumer.stream.executor import LaneSettings
from consumer.stream.lane import Lane
from consumer.stream.retry import RetryPolicy
from consumer.stream.scheduler import LaneScheduler
from consumer.stream.source import KafkaSource

LANES = ("recall", "retain")


@asynccontextmanager
async def open_lane(process: Process, name: str) -> AsyncIterator[Lane]:
    """A lane with its own clients and producer, shared with no other lane."""
    settings = process.settings
    topic, group, limit, handlers = {
        "recall": (settings.topic_agent_runs, settings.group_recall, settings.recall_in_flight, RUN_HANDLERS),
        "retain": (settings.topic_issue_comments, settings.group_retain, settings.retain_in_flight, COMMENT_HANDLERS),
    }[name]
    publisher = Publisher(partial(producer, settings))
    traces = tracing()

    def instrument(transport: Transport, upstream: Upstream) -> Transport:
        measured = process.metrics.measured(transport, upstream)
        return traces.sends(measured, upstream) if traces else measured

    async with open_clients(settings, limit, instrument) as (hindsight, paperclip):
        recalls = RecallPublisher(publisher, settings.topic_recalls)
        context = HandlerContext(settings.memory_policy(), hindsight, paperclip, recalls, time.time, process.warn)
        retry = RetryPolicy(
            settings.max_attempts, settings.retry_first_delay, settings.retry_max_delay, settings.forget_deadline
        )
        resolve = Dispatcher(context, handlers).resolve
        try:
            yield Lane(
                LaneSettings(name, settings.topic_dead_letters, settings.drain_timeout, RecordTooLarge),
                LaneScheduler(limit, retry, BackpressureLimits(), fallback_key),
                KafkaSource(partial(lane_consumer, settings, group), [topic]),
                traces.jobs(resolve, name) if traces else resolve,
                publisher.publish,
                process.notify,
            )
        finally:
            await publisher.close()


async def run_worker(settings: Settings, lanes: Sequence[str], *, strict: bool) -> int:
    """Run lanes until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    Args:
        strict: end with exit code 1 if a probe fails at the start.
    """
    process = start_process(settings, lanes)
    async with AsyncExitStack() as stack:
        ending = stack.enter_context(ExitStack())  # first in, last out: the deadline covers all other exits
        running = [await stack.enter_async_context(open_lane(process, name)) for name in lanes]
        stack.enter_context(serve_observability(process, "worker_port", lanes=running))
        if not await probe_at_start(process) and strict:
            return ExitCode.FAILED
        await stack.enter_async_context(watch_key(process))
        tasks = [asyncio.create_task(lane.run(), name=lane.name) for lane in running]
        await wait_for_shutdown(tasks)
        ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
        await stop_lanes(running, settings.shutdown_timeout)
        await asyncio.gather(*tasks)  # raises a lane's error: a bug
    return 0


async def stop_lanes(lanes: Sequence[Lane], shutdown_timeout: float) -> None:
    """Drain and commit, and leave a fifth of the time for the rest of the shutdown.

    Raises:
        Exception: the error of a lane that did not stop well, after all have stopped: the others drain until then.
    """
    stops = [lane.stop(shutdown_timeout * 0.8) for lane in lanes]
    for result in await asyncio.gather(*stops, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
