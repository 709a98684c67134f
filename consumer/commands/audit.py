"""Wiring of `backfill` and `audit`: what Hindsight should hold of the past, and what it holds."""

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
from consumer.reconcile.backfill import Survey, Wanted, publish, survey
from consumer.reconcile.findings import Report
from consumer.reconcile.pass_ import Audit
from consumer.reconcile.repair import Fix
from consumer.reconcile.report import audit_json, audit_text
from consumer.relay.checkpoints import Checkpoints
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import Json
from consumer.relay.publisher import Outbox
from consumer.relay.signals import RelaySignal
from consumer.relay.times import instant, iso
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel


@dataclass(frozen=True, slots=True)
class Tools:
    """What both commands use."""

    paperclip: PaperclipClient
    hindsight: HindsightClient
    publisher: Publisher
    copies: Copies
    outbox: Outbox


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
    """Publish a company's past comments; the exit code."""
    wanted = Wanted(company, since, issue, rate, _repair("backfill") if force else "")
    async with _opened(settings) as tools:
        try:
            with progress_bar("reading issues") as progress:
                found = await survey(tools.paperclip, tools.copies, wanted, progress)
            say(_found(wanted, found))
            if not dry_run:
                await _publish(settings, tools, wanted, found)
        except HandlingError as error:
            say(f"✗ {error}")
            return EXIT_FAILED
    return EXIT_FAILED if found.passed_over else 0


async def _publish(settings: Settings, tools: Tools, wanted: Wanted, found: Survey) -> None:
    checkpoints = Checkpoints(tools.publisher, partial(groupless_consumer, settings), settings.topic_relay_checkpoints)
    with translate_kafka_errors(settings):
        await checkpoints.read()
    name = ":".join([wanted.company, wanted.issue or "*", iso(wanted.since), "forced" if wanted.repair else "plain"])
    reached, announcements = checkpoints.backfilled(name), found.announcements
    if reached is not None:
        announcements = [each for each in announcements if instant(each.occurred_at) >= reached]
        say(f"going on at {iso(reached)}, where the same command was left: {len(announcements)} to go")
    with progress_bar("publishing") as progress:
        await publish(announcements, tools.outbox, partial(checkpoints.write_backfill, name), progress, wanted.rate)
    await checkpoints.write_backfill(name, None)
    say(f"published {len(announcements)} comments to {settings.topic_issue_comments}")


async def run_audit(settings: Settings, companies: Sequence[str], since: float, *, fix: bool, as_json: bool) -> int:
    """Compare Paperclip's comments with Hindsight's documents, and print what differs; the exit code."""
    done: list[tuple[Report, int | None]] = []
    async with _opened(settings) as tools:
        try:
            letters = await _letters(settings)
            for company in companies or (await tools.paperclip.authenticate()).company_ids:
                report, issues = await _audit(settings, tools, letters, company, since)
                repaired = None
                if fix and report.findings:
                    repair = Fix(tools.paperclip, tools.hindsight, tools.outbox, tools.copies, issues, _repair("audit"))
                    repaired = await repair.run(report)
                done.append((report, repaired))
                if not as_json:
                    say(audit_text(report, repaired))
        except HandlingError as error:
            sys.stderr.write(f"✗ {error}\n")
            return EXIT_FAILED
    if as_json:
        say(audit_json(done))
    return 0 if all(report.clean for report, _ in done) else EXIT_FAILED


async def _audit(
    settings: Settings, tools: Tools, letters: dict[str, str], company: str, since: float
) -> tuple[Report, dict[str, Json]]:
    with ExitStack() as bars:

        def progress(title: str) -> Progress:
            bars.close()
            return bars.enter_context(progress_bar(title))

        audit = Audit(tools.paperclip, tools.hindsight, settings.rules(), letters, time.time, progress)
        return await audit.run(company, since)


async def _letters(settings: Settings) -> dict[str, str]:
    """The reason of each open dead letter, by the id of its event; none if Kafka does not tell."""
    sources = (settings.topic_agent_runs, settings.topic_issue_comments)
    topic = LetterTopic(partial(groupless_consumer, settings), settings.topic_dead_letters, sources)
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            found = await topic.survey(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"! without the reasons of dead letters: {error}\n")
        return {}
    return {letter.event_id: letter.reason for letter in found.open if letter.event_id}


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Tools]:
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    async with AsyncExitStack() as stack:
        publisher = Publisher(partial(producer, settings))
        stack.push_async_callback(publisher.close)
        hindsight, _ = await stack.enter_async_context(open_clients(settings, settings.relay_in_flight))
        paperclip = await stack.enter_async_context(open_paperclip(settings))
        yield Tools(
            paperclip,
            hindsight,
            publisher,
            Copies(paperclip, _silent, enabled=True, issues=settings.rules().needs_user, now=time.time),
            Outbox(publisher.publish, _silent, runs=settings.topic_agent_runs, comments=settings.topic_issue_comments),
        )


def _found(wanted: Wanted, found: Survey) -> str:
    lines = [f"company {wanted.company}: {len(found.announcements)} comments since {iso(wanted.since)}"]
    if found.announcements:
        lines[0] += f", the oldest of {found.announcements[0].occurred_at}"
    if found.deleted:
        lines.append(f"{found.deleted} deleted ones are left out")
    lines += [f"issue {issue} could not be read: {why}" for issue, why in found.passed_over.items()]
    return "\n".join(lines)


def _repair(command: str) -> str:
    """Another text each time: Hindsight does not work again what it knows by its operation's id."""
    return f"{command} {iso(time.time())}"


def _silent(_: RelaySignal) -> None:
    """Commands say themselves what they do."""


say: Callable[[str], None] = print
