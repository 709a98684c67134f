"""`paperclip-memory up`: worker, tools, relay and exporter in one process, for a small installation."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from functools import partial

import structlog

from consumer.commands.check import probe_at_start
from consumer.commands.clients import require_paperclip
from consumer.commands.exporter import open_exporter
from consumer.commands.key_watch import watch_key
from consumer.commands.relay import open_relay, relay_ready
from consumer.commands.runtime import (
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.commands.tools import check_settings, open_tools
from consumer.commands.worker import LANES, open_lane, stop_lanes
from consumer.errors import ExitCode, UpstreamDown
from consumer.kafka.topics import ensure_topics
from consumer.paperclip.models import PaperclipOperation
from consumer.settings.model import Settings


async def run_up(settings: Settings, *, strict: bool) -> int:
    """Create missing topics, then run everything until SIGTERM or SIGINT; a second one ends the process at once.

    The worker's port serves all metrics and the health of all parts. Returns the exit code.

    Args:
        strict: end with exit code 1 if a probe fails at the start.

    Raises:
        SettingsError: a setting that one of the parts requires is missing.
    """
    require_paperclip(settings)
    check_settings(settings)
    process = start_process(settings, LANES, PaperclipOperation)
    async with AsyncExitStack() as stack:
        ending = stack.enter_context(ExitStack())  # first in, last out: the deadline covers all other exits
        lanes = [await stack.enter_async_context(open_lane(process, name)) for name in LANES]
        await stack.enter_async_context(watch_key(process))
        relay = await stack.enter_async_context(open_relay(process))
        asked = await stack.enter_async_context(open_exporter(process))
        stack.enter_context(
            serve_observability(process, "worker_port", lanes=lanes, ready=[partial(relay_ready, relay), asked])
        )
        await _create_topics(settings)
        if not await probe_at_start(process) and strict:
            return ExitCode.FAILED
        server = await stack.enter_async_context(open_tools(process))
        consuming = [asyncio.create_task(lane.run(), name=lane.name) for lane in lanes]
        following = asyncio.create_task(relay.run(), name="relay")
        await wait_for_shutdown([*consuming, following, server])
        ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
        following.cancel()
        await stop_lanes(lanes, settings.shutdown_timeout)
        await asyncio.wait([following])
        await asyncio.gather(*consuming)  # raises a lane's error: a bug
        if not following.cancelled():
            following.result()
    return 0


async def _create_topics(settings: Settings) -> None:
    """Kafka may not be up yet: the probes say so, and `topics` can be run later."""
    try:
        reports = await ensure_topics(settings)
    except UpstreamDown as error:
        structlog.get_logger().warning("topics were not created: run `paperclip-memory topics`", error=str(error))
        return
    for report in reports:
        structlog.get_logger().info("topic", name=report.name, state=report.state, details=report.details)
