"""Wiring of the exporter: `paperclip-memory exporter`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import structlog

from consumer.app import Process, open_clients, start_process
from consumer.app_process import last_resort, observed, until_told
from consumer.exporter.collector import ExporterGauges
from consumer.exporter.hindsight_source import HindsightWatch
from consumer.exporter.kafka_source import KafkaWatch
from consumer.exporter.snapshot import HindsightSeen, KafkaSeen, Source
from consumer.exporter.watch import Lookout
from consumer.observability.health import Check, Health
from consumer.settings import Settings


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
            with observed(process, "exporter_port", asked):
                await until_told(())
            ending.enter_context(last_resort(settings.shutdown_timeout))
    return 0


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
