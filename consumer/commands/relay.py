"""`paperclip-memory relay`."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from consumer.commands.check import probe_at_start
from consumer.commands.clients import USER_AGENT, open_paperclip, require_paperclip, reveal
from consumer.commands.key_watch import watch_key
from consumer.commands.runtime import (
    Process,
    cancel,
    serve_observability,
    shutdown_deadline,
    start_process,
    wait_for_shutdown,
)
from consumer.errors import ExitCode
from consumer.kafka.options import groupless_consumer, producer
from consumer.kafka.producer import Publisher
from consumer.observability.health import Health
from consumer.observability.relay_gauges import RelayGauges, count_published, log_relay
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


@asynccontextmanager
async def open_relay(process: Process) -> AsyncIterator[Relay]:
    """A relay, not started, with its metrics registered."""
    settings = process.settings
    url = require_paperclip(settings)
    topics = {Source.COMMENTS: settings.topic_issue_comments, Source.RUNS: settings.topic_agent_runs}
    notify = _both(count_published(process.registry, topics.values()), log_relay(structlog.get_logger()))
    publisher = Publisher(partial(producer, settings))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(publisher.close)
        paperclip = await stack.enter_async_context(
            open_paperclip(settings, settings.relay_in_flight, process.metrics.measured)
        )
        checkpoints = Checkpoints(publisher, partial(groupless_consumer, settings), settings.topic_relay_checkpoints)
        copies = Copies(paperclip, notify, settings.relay_enrich, settings.memory_policy().needs_user, time.time)

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
    """Follow Paperclip until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    Args:
        strict: end with exit code 1 if a probe fails at the start.
    """
    require_paperclip(settings)
    process = start_process(settings, (), PaperclipOperation)
    async with watch_key(process), open_relay(process) as relay:
        with serve_observability(process, "relay_metrics_port", ready=[partial(relay_ready, relay)]):
            if not await probe_at_start(process) and strict:
                return ExitCode.FAILED
            following = asyncio.create_task(relay.run(), name="relay")
            await wait_for_shutdown([following])
            with shutdown_deadline(settings.shutdown_timeout):
                await cancel(following)
    if not following.cancelled():
        following.result()  # raises the relay's error: a bug
    return 0


def relay_ready(relay: Relay) -> Health:
    """Whether the relay has begun. Trouble with one company does not count: a restart would not end it."""
    return Health(ok=relay.ready, reason="follows Paperclip" if relay.ready else "has not found its companies yet")


def _both(*notifies: Notify) -> Notify:
    def notify(signal_: RelaySignal) -> None:
        for each in notifies:
            each(signal_)

    return notify


def _headers(key: str | None) -> dict[str, str]:
    return {"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {key}"} if key else {})
