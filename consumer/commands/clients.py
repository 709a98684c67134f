"""Opens what several commands use: the clients of Hindsight and Paperclip, and the dead letters."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version

from pydantic import SecretStr

from consumer.dead_letters.topic import DeadLetterTopic
from consumer.errors import SettingsError, Upstream
from consumer.hindsight.client import HindsightClient
from consumer.http.backends import open_transport
from consumer.http.rest_client import Warn, silent
from consumer.http.transport import Transport, limit_in_flight
from consumer.kafka.options import groupless_consumer
from consumer.paperclip.client import PaperclipClient
from consumer.settings.model import Settings
from consumer.settings.types import label

VERSION = version("paperclip-memory")
USER_AGENT = f"paperclip-memory/{VERSION}"

Instrument = Callable[[Transport, Upstream], Transport]
"""Wraps a transport, to measure its requests."""


def _uninstrumented(transport: Transport, _: Upstream) -> Transport:
    return transport


@asynccontextmanager
async def open_hindsight(
    settings: Settings, limit: int, instrument: Instrument = _uninstrumented
) -> AsyncIterator[HindsightClient]:
    """A Hindsight client with a transport of its own, at most `limit` requests in flight."""
    async with open_transport(settings.http_backend, limit) as transport:
        yield HindsightClient(
            instrument(transport, Upstream.HINDSIGHT),
            settings.hindsight_api_url,
            key=reveal(settings.hindsight_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
            probe_timeout=settings.health_timeout,
        )


@asynccontextmanager
async def open_paperclip(
    settings: Settings,
    limit: int,
    instrument: Instrument = _uninstrumented,
    *,
    patient: bool = False,
    warn: Warn = silent,
) -> AsyncIterator[PaperclipClient]:
    """A Paperclip client with a transport of its own, at most `limit` requests in flight.

    Args:
        patient: waiting for other requests to end does not count towards a request's timeout.
        warn: tells the operator (event name and fields).

    Raises:
        SettingsError: Paperclip is not configured.
    """
    url = require_paperclip(settings)
    async with open_transport(settings.http_backend, limit) as opened:
        transport = instrument(opened, Upstream.PAPERCLIP)
        yield PaperclipClient(
            limit_in_flight(transport, limit) if patient else transport,
            url,
            key=reveal(settings.paperclip_api_key),
            user_agent=USER_AGENT,
            timeout=settings.http_timeout,
            probe_timeout=settings.health_timeout,
            warn=warn,
        )


@asynccontextmanager
async def open_clients(
    settings: Settings, limit: int, instrument: Instrument = _uninstrumented
) -> AsyncIterator[tuple[HindsightClient, PaperclipClient | None]]:
    """Both clients, at most `limit` requests in flight to each service. Paperclip's is None if it is not configured."""
    async with AsyncExitStack() as stack:
        hindsight = await stack.enter_async_context(open_hindsight(settings, limit, instrument))
        paperclip = None
        if settings.paperclip_api_url is not None:
            paperclip = await stack.enter_async_context(open_paperclip(settings, limit, instrument))
        yield hindsight, paperclip


def require_paperclip(settings: Settings) -> str:
    """Paperclip's URL. Raises `SettingsError` if it is not set."""
    if settings.paperclip_api_url is None:
        raise SettingsError([f"{label('paperclip_api_url')} is not set: this command reads Paperclip's API"])
    return settings.paperclip_api_url


def dead_letter_topic(settings: Settings) -> DeadLetterTopic:
    """The dead letters of all lanes."""
    sources = (settings.topic_agent_runs, settings.topic_issue_comments)
    return DeadLetterTopic(partial(groupless_consumer, settings), settings.topic_dead_letters, sources)


def reveal(value: SecretStr | None) -> str | None:
    """A secret's text."""
    return None if value is None else value.get_secret_value()
