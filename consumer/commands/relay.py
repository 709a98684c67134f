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
from consumer.relay.comment_poller import CommentPoller
from consumer.relay.company_follower import CompanyFollower
from consumer.relay.enrichment import EventEnricher
from consumer.relay.hooks import Hook, RelayEvent, Source
from consumer.relay.publisher import EventPublisher
from consumer.relay.relay import Relay, RelayConfig
from consumer.relay.run_poller import RunPoller
from consumer.relay.websocket import WebSocketListener
from consumer.settings.model import Settings


@asynccontextmanager
async def open_relay(process: Process) -> AsyncIterator[Relay]:
    """A relay, not started, with its metrics registered."""
    settings = process.settings
    url = require_paperclip(settings)
    topics = {Source.COMMENTS: settings.topic_issue_comments, Source.RUNS: settings.topic_agent_runs}
    hook = _both(count_published(process.registry, topics.values()), log_relay(structlog.get_logger()))
    producing = Publisher(partial(producer, settings))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(producing.close)
        paperclip = await stack.enter_async_context(
            open_paperclip(
                settings, settings.relay_in_flight, process.metrics.measured, patient=True, warn=process.warn
            )
        )
        checkpoints = Checkpoints(producing, partial(groupless_consumer, settings), settings.topic_relay_checkpoints)
        every_issue = settings.memory_policy().needs_user
        enricher = EventEnricher(paperclip, hook, settings.relay_enrich, every_issue, time.time)

        def open_follower(checkpoint: Checkpoint) -> CompanyFollower:
            company, start = checkpoint.company_id, checkpoint.start
            publisher = EventPublisher(
                producing.publish,
                hook,
                runs=topics[Source.RUNS],
                comments=topics[Source.COMMENTS],
                skew=lambda: paperclip.clock_skew,
            )
            follower = CompanyFollower(
                checkpoint,
                CommentPoller(paperclip, publisher, enricher, hook, company, start),
                RunPoller(paperclip, publisher, enricher, hook, company, start),
                checkpoints,
                hook,
                poll_interval=settings.relay_poll_interval,
                sweep_interval=settings.relay_sweep_interval,
            )
            if settings.relay_websocket:
                headers = _headers(reveal(settings.paperclip_api_key))
                triggers = follower.triggers[Source.COMMENTS], follower.triggers[Source.RUNS]
                follower.websocket = WebSocketListener(url, headers, company, *triggers)
            return follower

        config = RelayConfig(settings.relay_companies, settings.relay_start)
        relay = Relay(config, paperclip, checkpoints, open_follower, hook)
        process.registry.register(RelayGauges(topics, relay.caught_up_at, relay.states, lambda: paperclip.clock_skew))
        yield relay


async def run_relay(settings: Settings, *, strict: bool) -> int:
    """Follow Paperclip until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    Args:
        strict: end with exit code 1 if a probe fails at the start.
    """
    require_paperclip(settings)
    process = start_process(settings, (), PaperclipOperation)
    async with AsyncExitStack() as ending, watch_key(process), open_relay(process) as relay:
        with serve_observability(process, "relay_metrics_port", ready=[partial(relay_ready, relay)]):
            if not await probe_at_start(process) and strict:
                return ExitCode.FAILED
            following = asyncio.create_task(relay.run(), name="relay")
            await wait_for_shutdown([following])
            ending.enter_context(shutdown_deadline(settings.shutdown_timeout))
            await cancel(following)
    if not following.cancelled():
        following.result()  # raises the relay's error: a bug
    return 0


def relay_ready(relay: Relay) -> Health:
    """Whether the relay has begun. Trouble with one company does not count: a restart would not end it."""
    return Health(ok=relay.ready, reason="follows Paperclip" if relay.ready else "has not found its companies yet")


def _both(*hooks: Hook) -> Hook:
    def both(event: RelayEvent) -> None:
        for hook in hooks:
            hook(event)

    return both


def _headers(key: str | None) -> dict[str, str]:
    return {"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {key}"} if key else {})
