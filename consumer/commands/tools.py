"""`paperclip-memory tools`."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

import structlog

from consumer.commands.check import probe_at_start
from consumer.commands.clients import VERSION, open_clients, reveal
from consumer.commands.runtime import (
    Process,
    cancel,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.errors import ExitCode, SettingsError
from consumer.kafka.options import groupless_consumer
from consumer.observability.health import Health
from consumer.observability.tool_metrics import ToolMetrics
from consumer.paperclip.client import PaperclipClient
from consumer.recalls import RecallCache, RecallReader
from consumer.settings.model import Settings
from consumer.settings.types import label
from consumer.tools.authenticator import Authenticator
from consumer.tools.call_limits import CallLimits
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import ToolDispatcher
from consumer.tools.server import listening, serving, tools_app
from consumer.tools.service import MemoryService

RECALLS_AGE = 48 * 3600.0
"""Seconds: retention of the recalls topic."""
RECALLS_SIZE = 128 * 1024 * 1024
"""Maximum bytes of cached recalls, as encoded in the topic."""


def check_settings(settings: Settings) -> None:
    """Raise `SettingsError` if no caller could authenticate."""
    if settings.paperclip_api_url is None and settings.tools_shared_secret is None:
        problem = "is not set: the tools need it to verify agents' keys, or tools_shared_secret for Paperclip's gateway"
        raise SettingsError([f"{label('paperclip_api_url')} {problem}"])


@asynccontextmanager
async def open_tools(process: Process) -> AsyncIterator["asyncio.Task[None]"]:
    """Serve the tools until the block ends. Yields a task that ends earlier only on a failure.

    Raises:
        SettingsError: the address is not available, or no caller could authenticate.
    """
    settings = process.settings
    check_settings(settings)
    async with AsyncExitStack() as stack:
        bound = stack.enter_context(listening(settings.tools_host, settings.tools_port))
        opened = open_clients(settings, settings.tools_in_flight, process.metrics.measured)
        hindsight, paperclip = await stack.enter_async_context(opened)
        recalls = RecallCache(runs=settings.tools_runs_held, size=RECALLS_SIZE, max_age=RECALLS_AGE, now=time.time)
        recall_reader = RecallReader(
            partial(groupless_consumer, settings, settings.topic_recalls), recalls, process.warn
        )
        service = MemoryService(
            settings.memory_policy(), hindsight, recall_reader.get, partial(_paperclip_for, paperclip)
        )
        owner_lookup = None if paperclip is None else paperclip.with_key
        authenticator = Authenticator(reveal(settings.tools_shared_secret), owner_lookup, settings.tools_identity_ttl)
        dispatcher = ToolDispatcher(
            service,
            authenticator,
            CallLimits(settings.tools_in_flight),
            ToolMetrics(process.registry).observe,
            process.warn,
        )
        app = tools_app(dispatcher, version=VERSION, allowed_hosts=settings.tools_allowed_hosts)
        following = asyncio.create_task(recall_reader.run(), name="recalls")
        stack.push_async_callback(cancel, following)
        server = await stack.enter_async_context(serving(app, bound, settings.shutdown_timeout * 0.8))
        url = f"http://{settings.tools_host}:{bound.getsockname()[1]}"
        structlog.get_logger().info("serving tools", mcp=f"{url}/mcp", rest=f"{url}/v1")
        yield asyncio.create_task(_first(server, following), name="tools and recalls")


async def run_tools(settings: Settings, *, strict: bool) -> int:
    """Serve the tools until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    Args:
        strict: end with exit code 1 if a probe fails at the start.
    """
    check_settings(settings)
    process = start_process(settings, ())
    open_for_calls = threading.Event()

    def ready() -> Health:
        ok = open_for_calls.is_set()
        return Health(ok=ok, reason="serving calls" if ok else "not serving calls yet")

    with serve_observability(process, "tools_metrics_port", ready=[ready]), ExitStack() as ending:
        if not await probe_at_start(process) and strict:
            return ExitCode.FAILED
        async with open_tools(process) as server:
            open_for_calls.set()
            await wait_for_shutdown([server])
            open_for_calls.clear()
            ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
        await server  # raises its error
    return 0


async def _first(*tasks: "asyncio.Task[None]") -> None:
    """Wait until one task ends; raises its error."""
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


def _paperclip_for(paperclip: PaperclipClient | None, agent: Agent) -> PaperclipClient | None:
    """Paperclip as the agent sees it; as we see it if the gateway calls."""
    return paperclip.with_key(agent.bearer) if paperclip is not None and agent.bearer is not None else paperclip
