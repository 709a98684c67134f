"""`paperclip-memory audit`."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from consumer.commands.clients import dead_letter_topic
from consumer.commands.progress import Progress, progress_bar
from consumer.commands.reconcile_clients import ReconcileClients, new_repair, open_reconcile_clients
from consumer.errors import ExitCode, HandlingError, UpstreamDown
from consumer.kafka.options import translate_kafka_errors
from consumer.paperclip.models import Json
from consumer.reconcile.audit import Audit
from consumer.reconcile.findings import Report
from consumer.reconcile.repair import Repair
from consumer.reconcile.report import render_json, render_text
from consumer.settings.model import Settings


async def run_audit(settings: Settings, companies: Sequence[str], since: float, *, fix: bool, as_json: bool) -> int:
    """Compare Paperclip's comments with Hindsight's documents, and print the differences. Returns the exit code."""
    reports: list[tuple[Report, int | None]] = []
    async with open_reconcile_clients(settings) as clients:
        try:
            dead_letters = await _dead_letter_reasons(settings)
            for company in companies or (await clients.paperclip.authenticate()).company_ids:
                report, issues = await _audit(settings, clients, dead_letters, company, since)
                repaired = await _repair(clients, report, issues) if fix and report.findings else None
                reports.append((report, repaired))
                if not as_json:
                    echo(render_text(report, repaired))
        except HandlingError as error:
            sys.stderr.write(f"✗ {error}\n")
            return ExitCode.FAILED
    if as_json:
        echo(render_json(reports))
    return 0 if all(report.clean for report, _ in reports) else ExitCode.FAILED


async def _audit(
    settings: Settings, clients: ReconcileClients, dead_letters: dict[str, str], company: str, since: float
) -> tuple[Report, dict[str, Json]]:
    with ExitStack() as bars:

        def progress(title: str) -> Progress:
            bars.close()
            return bars.enter_context(progress_bar(title))

        audit = Audit(clients.paperclip, clients.hindsight, settings.memory_policy(), dead_letters, time.time, progress)
        return await audit.run(company, since)


async def _repair(clients: ReconcileClients, report: Report, issues: dict[str, Json]) -> int:
    repair = Repair(clients.paperclip, clients.hindsight, clients.events, clients.enricher, issues, new_repair("audit"))
    return await repair.run(report)


async def _dead_letter_reasons(settings: Settings) -> dict[str, str]:
    """The reason of each open dead letter, by the id of its event; none if Kafka cannot be read."""
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            contents = await dead_letter_topic(settings).read(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"! without the reasons of dead letters: {error}\n")
        return {}
    return {letter.event_id: letter.reason for letter in contents.open if letter.event_id}


echo: Callable[[str], None] = print
