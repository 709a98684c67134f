"""Wiring of the exporter and of `paperclip-memory status`, which look at the same things."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

import structlog
from rich.console import Console
from rich.live import Live

from consumer.commands.runtime import (
    EXIT_FAILED,
    Process,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.commands.worker import open_clients
from consumer.dead_letters.topic import LetterTopic
from consumer.exporter.hindsight_source import HindsightWatch
from consumer.exporter.kafka_source import KafkaWatch
from consumer.exporter.poller import Lookout
from consumer.exporter.snapshot import HindsightSeen, KafkaSeen, Source
from consumer.exporter.status import Letters, Status, as_screen, take
from consumer.exporter.status import as_json as status_json
from consumer.kafka.options import groupless_consumer, translate_kafka_errors
from consumer.observability.exporter_gauges import ExporterGauges
from consumer.observability.health import Check, Health
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel

WATCH_INTERVAL = 5.0
"""Seconds between two looks of `status --watch`."""


@asynccontextmanager
async def open_exporter(process: Process) -> AsyncIterator[Check]:
    """Look at Kafka and Hindsight until the block ends. Gives the check of whether each was asked at least once."""
    settings, log = process.settings, structlog.get_logger()
    async with AsyncExitStack() as stack:
        hindsight, _ = await stack.enter_async_context(open_clients(settings, 1, process.metrics.measured))
        watch = KafkaWatch(settings)
        stack.push_async_callback(watch.close)
        kafka = Lookout[KafkaSeen](Source.KAFKA, watch.look, log)
        queue = Lookout[HindsightSeen](Source.HINDSIGHT, HindsightWatch(hindsight, settings.exporter_banks).look, log)
        max_age = settings.exporter_max_age
        process.registry.register(ExporterGauges(lambda: kafka.outcome, lambda: queue.outcome, max_age))
        for run in (kafka.run(settings.exporter_interval), queue.run(settings.exporter_interval)):
            stack.push_async_callback(_cancel, asyncio.create_task(run))

        def asked() -> Health:
            ok = kafka.looked and queue.looked
            return Health(ok=ok, reason="every source was asked" if ok else "not every source was asked yet")

        yield asked


async def run_exporter(settings: Settings) -> int:
    """Serve the gauges until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    What does not answer at the start is asked again: to show that is what an exporter is for.
    """
    process = start_process(settings, ())
    with ExitStack() as ending:
        async with open_exporter(process) as asked:
            with serve_observability(process, "exporter_port", ready=[asked]):
                await wait_for_shutdown(())
            ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
    return 0


async def run_status(settings: Settings, *, watch: bool, as_json: bool) -> int:
    """Print how everything stands, with `watch` until Ctrl-C. Returns the exit code: 1 if a source is silent."""
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it would say stands on the screen
    async with AsyncExitStack() as stack:
        hindsight, _ = await stack.enter_async_context(open_clients(settings, 1))
        kafka = KafkaWatch(settings)
        stack.push_async_callback(kafka.close)
        queue = HindsightWatch(hindsight, settings.exporter_banks)

        async def look() -> Status:
            return await take(kafka.look, queue.look, partial(_letters, settings))

        console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
        if watch:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(as_screen(await look()), refresh=True)
                    await asyncio.sleep(WATCH_INTERVAL)
        status = await look()
    if as_json:
        print(status_json(status))  # noqa: T201 - this is what the command is for
    else:
        console.print(as_screen(status))
    return EXIT_FAILED if status.silent else 0


async def _letters(settings: Settings) -> Letters:
    topics = (settings.topic_agent_runs, settings.topic_issue_comments)
    topic = LetterTopic(partial(groupless_consumer, settings), settings.topic_dead_letters, topics)
    with translate_kafka_errors(settings):
        survey = await topic.survey(lambda _done, _total: None)
    return Letters(dict(Counter(letter.reason for letter in survey.open)), survey.redriven)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
