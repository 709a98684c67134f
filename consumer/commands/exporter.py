"""`paperclip-memory exporter`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import structlog

from consumer.commands.clients import open_hindsight
from consumer.commands.runtime import (
    Process,
    cancel,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.exporter.hindsight_source import CONCURRENT_BANKS, HindsightReader
from consumer.exporter.kafka_source import KafkaReader
from consumer.exporter.poller import SourcePoller
from consumer.exporter.snapshot import HindsightSnapshot, KafkaSnapshot, Source
from consumer.observability.exporter_gauges import ExporterGauges
from consumer.observability.health import Check, Health
from consumer.settings.model import Settings


@asynccontextmanager
async def open_exporter(process: Process) -> AsyncIterator[Check]:
    """Poll Kafka and Hindsight until the block ends. Yields a check that passes once each was polled."""
    settings, log = process.settings, structlog.get_logger()
    async with AsyncExitStack() as stack:
        hindsight = await stack.enter_async_context(
            open_hindsight(settings, CONCURRENT_BANKS, process.metrics.measured)
        )
        reader = KafkaReader(settings, process.warn)
        stack.push_async_callback(reader.close)
        kafka = SourcePoller[KafkaSnapshot](Source.KAFKA, reader.read, log)
        max_age = settings.exporter_max_age
        banks = HindsightReader(hindsight, settings.exporter_banks, time_limit=max_age / 2, warn=process.warn)
        queue = SourcePoller[HindsightSnapshot](Source.HINDSIGHT, banks.read, log)
        process.registry.register(ExporterGauges(lambda: kafka.last, lambda: queue.last, max_age))
        for run in (kafka.run(settings.exporter_interval), queue.run(settings.exporter_interval)):
            stack.push_async_callback(cancel, asyncio.create_task(run))

        def asked() -> Health:
            ok = kafka.polled and queue.polled
            return Health(ok=ok, reason="every source was polled" if ok else "not every source was polled yet")

        yield asked


async def run_exporter(settings: Settings) -> int:
    """Serve the gauges until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    It starts without probes: an exporter reports which source does not answer.
    """
    process = start_process(settings, ())
    with ExitStack() as ending:
        async with open_exporter(process) as asked:
            with serve_observability(process, "exporter_port", ready=[asked]):
                await wait_for_shutdown(())
            ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
    return 0
