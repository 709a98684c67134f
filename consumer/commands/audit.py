"""The commands `backfill` and `audit`: publish past comments, and compare Paperclip with Hindsight."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from consumer.commands.progress import Progress, progress_bar
from consumer.commands.relay import open_paperclip
from consumer.commands.runtime import EXIT_FAILED
from consumer.commands.worker import open_clients
from consumer.dead_letters.topic import LetterTopic
from consumer.errors import HandlingError, UpstreamDown
from consumer.hindsight.client import HindsightClient
from consumer.kafka.options import groupless_consumer, producer, translate_kafka_errors
from consumer.kafka.producer import Publisher
from consumer.observability.logs import configure_logging
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import Json
from consumer.reconcile.audit import Audit
from consumer.reconcile.backfill import BackfillPlan, BackfillRequest, plan_backfill, publish_backfill
from consumer.reconcile.findings import Report
from consumer.reconcile.repair import Repair
from consumer.reconcile.report import render_json, render_text
from consumer.relay.checkpoints import Checkpoints
from consumer.relay.enrichment import EventEnricher
from consumer.relay.hooks import RelayEvent
from consumer.relay.publisher import EventPublisher
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel
from schemas.timestamps import format_timestamp, parse_timestamp


@dataclass(frozen=True, slots=True)
class _Resources:
    """What both commands need."""

    paperclip: PaperclipClient
    hindsight: HindsightClient
    publisher: Publisher
    enricher: EventEnricher
    events: EventPublisher


async def run_backfill(
    settings: Settings,
    company: str,
    since: float,
    issue: str | None,
    *,
    dry_run: bool,
    rate: float | None,
    force: bool,
) -> int:
    """Publish a company's past comments. Returns the exit code."""
    request = BackfillRequest(company, since, issue, rate, _new_repair("backfill") if force else "")
    async with _open_resources(settings) as resources:
        try:
            with progress_bar("reading issues") as progress:
                plan = await plan_backfill(resources.paperclip, resources.enricher, request, progress)
            echo(_plan_text(request, plan))
            if not dry_run:
                await _publish(settings, resources, request, plan)
        except HandlingError as error:
            echo(f"✗ {error}")
            return EXIT_FAILED
    return EXIT_FAILED if plan.unreadable_issues else 0


async def _publish(settings: Settings, resources: _Resources, request: BackfillRequest, plan: BackfillPlan) -> None:
    make_consumer = partial(groupless_consumer, settings)
    checkpoints = Checkpoints(resources.publisher, make_consumer, settings.topic_relay_checkpoints)
    with translate_kafka_errors(settings):
        await checkpoints.read()
    kind = "forced" if request.repair else "plain"
    name = ":".join([request.company, request.issue or "*", format_timestamp(request.since), kind])
    position, events = checkpoints.backfill_position(name), plan.events
    if position is not None:
        events = [event for event in events if parse_timestamp(event.occurred_at) >= position]
        echo(f"resuming at {format_timestamp(position)}: {len(events)} comments to publish")
    save = partial(checkpoints.write_backfill_position, name)
    with progress_bar("publishing") as progress:
        await publish_backfill(events, resources.events, save, progress, request.rate)
    await checkpoints.write_backfill_position(name, None)
    echo(f"published {len(events)} comments to {settings.topic_issue_comments}")


async def run_audit(settings: Settings, companies: Sequence[str], since: float, *, fix: bool, as_json: bool) -> int:
    """Compare Paperclip's comments with Hindsight's documents, and print the differences. Returns the exit code."""
    reports: list[tuple[Report, int | None]] = []
    async with _open_resources(settings) as resources:
        try:
            dead_letters = await _dead_letter_reasons(settings)
            for company in companies or (await resources.paperclip.authenticate()).company_ids:
                report, issues = await _audit(settings, resources, dead_letters, company, since)
                repaired = await _repair(resources, report, issues) if fix and report.findings else None
                reports.append((report, repaired))
                if not as_json:
                    echo(render_text(report, repaired))
        except HandlingError as error:
            sys.stderr.write(f"✗ {error}\n")
            return EXIT_FAILED
    if as_json:
        echo(render_json(reports))
    return 0 if all(report.clean for report, _ in reports) else EXIT_FAILED


async def _audit(
    settings: Settings, resources: _Resources, dead_letters: dict[str, str], company: str, since: float
) -> tuple[Report, dict[str, Json]]:
    with ExitStack() as bars:

        def progress(title: str) -> Progress:
            bars.close()
            return bars.enter_context(progress_bar(title))

        paperclip, hindsight = resources.paperclip, resources.hindsight
        audit = Audit(paperclip, hindsight, settings.rules(), dead_letters, time.time, progress)
        return await audit.run(company, since)


async def _repair(resources: _Resources, report: Report, issues: dict[str, Json]) -> int:
    paperclip, hindsight = resources.paperclip, resources.hindsight
    repair = Repair(paperclip, hindsight, resources.events, resources.enricher, issues, _new_repair("audit"))
    return await repair.run(report)


async def _dead_letter_reasons(settings: Settings) -> dict[str, str]:
    """The reason of each open dead letter, by the id of its event; none if Kafka cannot be read."""
    sources = (settings.topic_agent_runs, settings.topic_issue_comments)
    topic = LetterTopic(partial(groupless_consumer, settings), settings.topic_dead_letters, sources)
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            survey = await topic.survey(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"! without the reasons of dead letters: {error}\n")
        return {}
    return {letter.event_id: letter.reason for letter in survey.open if letter.event_id}


@asynccontextmanager
async def _open_resources(settings: Settings) -> AsyncIterator[_Resources]:
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    async with AsyncExitStack() as stack:
        publisher = Publisher(partial(producer, settings))
        stack.push_async_callback(publisher.close)
        hindsight, _ = await stack.enter_async_context(open_clients(settings, settings.relay_in_flight))
        paperclip = await stack.enter_async_context(open_paperclip(settings))
        yield _Resources(
            paperclip,
            hindsight,
            publisher,
            EventEnricher(paperclip, _ignore, True, settings.rules().needs_user, time.time),
            EventPublisher(
                publisher.publish, _ignore, runs=settings.topic_agent_runs, comments=settings.topic_issue_comments
            ),
        )


def _plan_text(request: BackfillRequest, plan: BackfillPlan) -> str:
    lines = [f"company {request.company}: {len(plan.events)} comments since {format_timestamp(request.since)}"]
    if plan.events:
        lines[0] += f", the oldest of {plan.events[0].occurred_at}"
    if plan.deleted:
        lines.append(f"{plan.deleted} deleted comments are left out")
    lines += [f"issue {issue} could not be read: {why}" for issue, why in plan.unreadable_issues.items()]
    return "\n".join(lines)


def _new_repair(command: str) -> str:
    """A different text each time: Hindsight ignores an operation whose id it knows."""
    return f"{command} {format_timestamp(time.time())}"


def _ignore(_: RelayEvent) -> None:
    """Commands print their own messages."""


echo: Callable[[str], None] = print
