"""What a process without lanes needs around its work: health and metrics, signals, an end that comes for certain."""

import asyncio
import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

import structlog

from consumer.app import EXIT_INTERRUPTED, Process
from consumer.observability.health import Check, liveness
from consumer.observability.health import Limits as HealthLimits
from consumer.observability.lanes import Pulse
from consumer.observability.server import serving
from consumer.observability.watchdog import Watchdog, thread_stack


@contextmanager
def observed(process: Process, port: str, ready: Check) -> Iterator[None]:
    """Serve metrics and health of this process until the block ends, and watch that its event loop runs.

    Args:
        port: the name of the port's setting.
        ready: the check of `/readyz`; other threads call it.
    """
    settings = process.settings
    pulse = Pulse(list)
    live = liveness(pulse, HealthLimits())
    main_thread = threading.get_ident()

    def tell(reason: str, seconds: float, where: str) -> None:
        structlog.get_logger().error("no progress: ending the process", reason=reason, seconds=seconds, stack=where)

    with ExitStack() as within:
        host, number = settings.worker_host, getattr(settings, port)
        bound = within.enter_context(
            serving(host, number, registry=process.registry, live=live, ready=ready, setting=port)
        )
        structlog.get_logger().info("serving", metrics=f"http://{host}:{bound}/metrics")
        beating = asyncio.create_task(pulse.run(), name="pulse")
        within.callback(beating.cancel)
        within.enter_context(Watchdog(live, lambda: thread_stack(main_thread), tell).watching())
        yield


async def until_told(tasks: Collection["asyncio.Task[None]"]) -> None:
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
def last_resort(timeout: float) -> Iterator[None]:
    """End the process if the block takes longer, even outside the event loop: no supervisor need kill it."""
    structlog.get_logger().info("stopping", within_seconds=timeout)
    timer = threading.Timer(timeout, os._exit, (EXIT_INTERRUPTED,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
