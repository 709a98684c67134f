"""Wiring of the tools: `paperclip-memory tools` and `paperclip-memory connect`."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

import structlog

from consumer.commands.runtime import (
    EXIT_FAILED,
    USER_AGENT,
    VERSION,
    Process,
    reveal,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.commands.worker import open_clients, probe_at_start
from consumer.errors import HandlingError, SettingsError, Upstream
from consumer.http.backends import open_transport
from consumer.http.rest_client import RestClient
from consumer.kafka.options import groupless_consumer
from consumer.observability.health import Health
from consumer.observability.logs import configure_logging
from consumer.observability.tool_metrics import ToolCalls
from consumer.paperclip.client import PaperclipClient
from consumer.recalls import RecallMap, RecallReader
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel
from consumer.settings.validation import label
from consumer.tools.authenticator import Callers
from consumer.tools.credentials import Agent
from consumer.tools.dispatcher import Desk
from consumer.tools.registration import ConnectionSpec, ToolRegistration
from consumer.tools.server import listening, serving, tools_app
from consumer.tools.service import Memories

RECALLS_AGE = 48 * 3600.0
"""Seconds: what the recalls topic keeps."""
RECALLS_SIZE = 128 * 1024 * 1024
"""Bytes of recalled memories, as they stand on the topic, that are held at once."""


def check_settings(settings: Settings) -> None:
    """Raise `SettingsError` if nobody could prove who it is."""
    if settings.paperclip_api_url is None and settings.tools_shared_secret is None:
        problem = "is not set: the tools need it to check agents' keys, or tools_shared_secret for Paperclip's gateway"
        raise SettingsError([f"{label('paperclip_api_url')} {problem}"])


def tune_garbage_collection() -> None:
    """Collect seldom.

    A call over MCP makes hundreds of objects that live as long as it does. With Python's own thresholds, looking for
    garbage among those of 200 calls at once takes half of the time (`benchmarks.tools`).
    """
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def open_tools(process: Process) -> AsyncIterator["asyncio.Task[None]"]:
    """Serve the tools until the block ends. Gives a task that ends before only if something is wrong.

    Raises:
        SettingsError: nobody can listen there, or nobody could prove who it is.
    """
    settings = process.settings
    check_settings(settings)
    async with AsyncExitStack() as stack:
        bound = stack.enter_context(listening(settings.tools_host, settings.tools_port))
        opened = open_clients(settings, settings.tools_in_flight, process.metrics.measured)
        hindsight, paperclip = await stack.enter_async_context(opened)
        recalls = RecallMap(runs=settings.tools_runs_held, size=RECALLS_SIZE, max_age=RECALLS_AGE, now=time.time)
        known = RecallReader(partial(groupless_consumer, settings, settings.topic_recalls), recalls, process.warn)
        memories = Memories(settings.rules(), hindsight, known.get, partial(_lookups, paperclip))
        as_caller = None if paperclip is None else paperclip.with_key
        callers = Callers(reveal(settings.tools_shared_secret), as_caller, settings.tools_identity_ttl)
        desk = Desk(memories, callers, ToolCalls(process.registry).observe, process.warn)
        app = tools_app(desk, version=VERSION, allowed_hosts=settings.tools_allowed_hosts)
        following = asyncio.create_task(known.run(), name="recalls")
        stack.push_async_callback(_cancel, following)
        server = await stack.enter_async_context(serving(app, bound, settings.shutdown_timeout * 0.8))
        url = f"http://{settings.tools_host}:{bound.getsockname()[1]}"
        structlog.get_logger().info("tools are served", mcp=f"{url}/mcp", rest=f"{url}/v1")
        yield asyncio.create_task(_first(server, following), name="tools and recalls")


async def run_tools(settings: Settings, *, strict: bool) -> int:
    """Serve the tools until SIGTERM or SIGINT; a second one ends the process at once.

    Args:
        strict: end with 1 when a probe fails at the start.

    Returns:
        the exit code.
    """
    check_settings(settings)
    tune_garbage_collection()
    process = start_process(settings, ())
    open_for_calls = threading.Event()

    def ready() -> Health:
        ok = open_for_calls.is_set()
        return Health(ok=ok, reason="takes calls" if ok else "takes no calls")

    with serve_observability(process, "tools_metrics_port", ready=[ready]), ExitStack() as ending:
        if not await probe_at_start(process) and strict:
            return EXIT_FAILED
        async with open_tools(process) as server:
            open_for_calls.set()
            await wait_for_shutdown([server])
            open_for_calls.clear()
            ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
        await server  # raises what it failed with
    return 0


async def connect(settings: Settings, company: str, *, dry_run: bool) -> int:
    """Register the tools in Paperclip for a company, and print what was done; the exit code.

    Raises:
        SettingsError: what `connect` needs is not set.
    """
    shared = reveal(settings.tools_shared_secret)
    needed = {"paperclip_api_url": settings.paperclip_api_url, "tools_shared_secret": shared}
    if missing := [f"{label(name)} is not set: connect needs it" for name, value in needed.items() if value is None]:
        raise SettingsError(missing)
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    url = settings.tools_url or f"http://{settings.tools_host}:{settings.tools_port}"
    async with open_transport(settings.http_backend, 1) as send:
        paperclip = RestClient(
            send,
            str(settings.paperclip_api_url),
            Upstream.PAPERCLIP,
            key=reveal(settings.paperclip_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
        )
        try:
            done = await ToolRegistration(
                paperclip, ConnectionSpec(company, url, str(shared)), print, dry_run=dry_run
            ).run()
        except HandlingError as error:
            print(f"✗ {error}")  # noqa: T201 - this is what the command is for
            return EXIT_FAILED
    return 0 if done else EXIT_FAILED


async def _first(*tasks: "asyncio.Task[None]") -> None:
    """Wait until one has ended; raises what it failed with."""
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


def _lookups(paperclip: PaperclipClient | None, agent: Agent) -> PaperclipClient | None:
    """Paperclip as the agent itself sees it; as we do for one that the gateway speaks for."""
    return paperclip.with_key(agent.bearer) if paperclip is not None and agent.bearer is not None else paperclip
