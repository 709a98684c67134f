"""`paperclip-memory status`."""

import asyncio
import logging
import sys
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from rich.console import Console
from rich.live import Live

from consumer.commands.clients import dead_letter_topic, open_clients
from consumer.commands.paperclip_probes import read_paperclip
from consumer.errors import ExitCode
from consumer.exporter.hindsight_source import CONCURRENT_BANKS, HindsightReader
from consumer.exporter.kafka_source import KafkaReader
from consumer.exporter.status import Letters, PaperclipState, Status, as_json, as_screen, take
from consumer.kafka.options import translate_kafka_errors
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel

WATCH_INTERVAL = 5.0
"""Seconds between two updates of `status --watch`."""


async def run_status(settings: Settings, *, watch: bool, json: bool) -> int:
    """Print the status, with `watch` until Ctrl-C. Returns the exit code: 1 if a source does not answer."""
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the screen shows its errors
    async with AsyncExitStack() as stack:
        hindsight, paperclip = await stack.enter_async_context(open_clients(settings, CONCURRENT_BANKS))
        kafka = KafkaReader(settings)
        stack.push_async_callback(kafka.close)
        queue = HindsightReader(hindsight, settings.exporter_banks)

        async def look() -> Status:
            return await take(kafka.read, queue.read, partial(_letters, settings), read_server)

        async def read_server() -> PaperclipState | None:
            return None if paperclip is None else await read_paperclip(paperclip)

        console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
        if watch:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(as_screen(await look()), refresh=True)
                    await asyncio.sleep(WATCH_INTERVAL)
        status = await look()
    if json:
        print(as_json(status))  # noqa: T201
    else:
        console.print(as_screen(status))
    return ExitCode.FAILED if status.silent else 0


async def _letters(settings: Settings) -> Letters:
    with translate_kafka_errors(settings):
        contents = await dead_letter_topic(settings).read(lambda _done, _total: None)
    return Letters(dict(Counter(letter.reason for letter in contents.open)), contents.redriven)
