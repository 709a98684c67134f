"""Wiring of the relay: `paperclip-memory relay`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from consumer.commands.runtime import (
    EXIT_FAILED,
    USER_AGENT,
    Process,
    reveal,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.commands.worker import probe_at_start
from consumer.errors import SettingsError, Upstream
from consumer.http.backends import open_transport
from consumer.http.transport import Transport
from consumer.kafka.options import groupless_consumer, producer
from consumer.kafka.producer import Publisher
from consumer.observability.health import Health
from consumer.observability.relay_gauges import RelayGauges, count_published, log_relay
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import PaperclipOperation
from consumer.relay.checkpoints import Checkpoint, Checkpoints
from consumer.relay.comment_poller import CommentFeed
from consumer.relay.company_follower import Company
from consumer.relay.enrichment import Copies
from consumer.relay.publisher import Outbox
from consumer.relay.relay import Plan, Relay
from consumer.relay.run_poller import RunFeed
from consumer.relay.signals import Notify, RelaySignal, Source
from consumer.relay.websocket import Hints
from consumer.settings.model import Settings
from consumer.settings.validation import label


def check_settings(settings: Settings) -> str:
    """Paperclip's URL. Raises `SettingsError` if there is none."""
    if settings.paperclip_api_url is None:
        raise SettingsError([f"{label('paperclip_api_url')} is not set: the relay reads Paperclip's API"])
    return settings.paperclip_api_url


@asynccontextmanager
async def open_paperclip(
    settings: Settings, measured: Callable[[Transport, Upstream], Transport] = lambda send, _: send
) -> AsyncIterator[PaperclipClient]:
    """A client of Paperclip with at most `relay_in_flight` requests at once. Raises `SettingsError`."""
    url, key = check_settings(settings), reveal(settings.paperclip_api_key)
    async with open_transport(settings.http_backend, settings.relay_in_flight) as opened:
        send = measured(opened, Upstream.PAPERCLIP)
        yield PaperclipClient(send, url, key=key, user_agent=USER_AGENT, timeout=settings.http_timeout)


@asynccontextmanager
async def open_relay(process: Process) -> AsyncIterator[Relay]:
    """A relay that does not run yet; its metrics are registered."""
    settings = process.settings
    url = check_settings(settings)
    topics = {Source.COMMENTS: settings.topic_issue_comments, Source.RUNS: settings.topic_agent_runs}
    notify = _both(count_published(process.registry, topics.values()), log_relay(structlog.get_logger()))
    publisher = Publisher(partial(producer, settings))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(publisher.close)
        paperclip = await stack.enter_async_context(open_paperclip(settings, process.metrics.measured))
        checkpoints = Checkpoints(publisher, partial(groupless_consumer, settings), settings.topic_relay_checkpoints)
        copies = Copies(paperclip, notify, settings.relay_enrich, settings.rules().needs_user, time.time)

        def open_company(at: Checkpoint) -> Company:
            outbox = Outbox(publisher.publish, notify, runs=topics[Source.RUNS], comments=topics[Source.COMMENTS])
            comments = CommentFeed(paperclip, outbox, copies, notify, at.company_id, at.start)
            runs = RunFeed(paperclip, outbox, copies, notify, at.company_id, at.start)
            company = Company(
                at,
                comments,
                runs,
                checkpoints,
                notify,
                poll=settings.relay_poll_interval,
                sweep=settings.relay_sweep_interval,
            )
            if settings.relay_websocket:
                wakes = company.wakes[Source.COMMENTS], company.wakes[Source.RUNS]
                company.hints = Hints(url, _headers(reveal(settings.paperclip_api_key)), at.company_id, *wakes)
            return company

        plan = Plan(settings.relay_companies, settings.relay_start)
        relay = Relay(plan, paperclip, checkpoints, open_company, notify)
        process.registry.register(RelayGauges(topics, relay.read_at, relay.states))
        yield relay


async def run_relay(settings: Settings, *, strict: bool) -> int:
    """Follow Paperclip until SIGTERM or SIGINT; a second one ends the process at once.

    Args:
        strict: end with 1 when a probe fails at the start.

    Returns:
        the exit code.
    """
    check_settings(settings)
    process = start_process(settings, (), PaperclipOperation)
    async with open_relay(process) as relay:
        with serve_observability(process, "relay_metrics_port", ready=[partial(relay_ready, relay)]):
            if not await probe_at_start(process) and strict:
                return EXIT_FAILED
            following = asyncio.create_task(relay.run(), name="relay")
            await wait_for_shutdown([following])
            with shutdown_deadline(settings.shutdown_timeout):
                following.cancel()
                await asyncio.wait([following])
    if not following.cancelled():
        following.result()  # raises what it failed with
    return 0


def relay_ready(relay: Relay) -> Health:
    """Whether it has begun: trouble with a company is waited out, and a restart would not end it."""
    return Health(ok=relay.ready, reason="follows Paperclip" if relay.ready else "has not found its companies yet")


def _both(*notifies: Notify) -> Notify:
    def notify(signal_: RelaySignal) -> None:
        for each in notifies:
            each(signal_)

    return notify


def _headers(key: str | None) -> dict[str, str]:
    return {"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {key}"} if key else {})
