"""Opens what `audit` and `backfill` share."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from consumer.commands.clients import open_hindsight, open_paperclip
from consumer.hindsight.client import HindsightClient
from consumer.kafka.options import producer
from consumer.kafka.producer import Publisher
from consumer.observability.logs import configure_logging
from consumer.paperclip.client import PaperclipClient
from consumer.relay.enrichment import EventEnricher
from consumer.relay.hooks import RelayEvent
from consumer.relay.publisher import EventPublisher
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel
from schemas.timestamps import format_timestamp


@dataclass(frozen=True, slots=True)
class ReconcileClients:
    """Clients of Paperclip, Hindsight and Kafka."""

    paperclip: PaperclipClient
    hindsight: HindsightClient
    publisher: Publisher
    enricher: EventEnricher
    events: EventPublisher


@asynccontextmanager
async def open_reconcile_clients(settings: Settings) -> AsyncIterator[ReconcileClients]:
    """Open all clients. Raises `SettingsError` if Paperclip is not configured."""
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    async with AsyncExitStack() as stack:
        publisher = Publisher(partial(producer, settings))
        stack.push_async_callback(publisher.close)
        hindsight = await stack.enter_async_context(open_hindsight(settings, settings.relay_in_flight))
        paperclip = await stack.enter_async_context(open_paperclip(settings, settings.relay_in_flight, patient=True))
        yield ReconcileClients(
            paperclip,
            hindsight,
            publisher,
            EventEnricher(paperclip, _ignore, True, settings.memory_policy().needs_user, time.time),
            EventPublisher(
                publisher.publish, _ignore, runs=settings.topic_agent_runs, comments=settings.topic_issue_comments
            ),
        )


def new_repair(command: str) -> str:
    """A value for the header `repair` that was never used: Hindsight ignores an operation id that it has seen."""
    return f"{command} {format_timestamp(time.time())}"


def _ignore(_: RelayEvent) -> None:
    """The commands print their own progress."""
