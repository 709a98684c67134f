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
from consumer.reconcile.findings import Report
from consumer.reconcile.pass_ import Audit
from consumer.reconcile.repair import Fix
from consumer.reconcile.report import audit_json, audit_text
from consumer.relay.event_builder import Json
from consumer.settings.model import Settings


async def run_audit(settings: Settings, companies: Sequence[str], since: float, *, fix: bool, as_json: bool) -> int:
    """Compare Paperclip's comments with Hindsight's documents, and print what differs; the exit code."""
    done: list[tuple[Report, int | None]] = []
    async with open_reconcile_clients(settings) as clients:
        try:
            letters = await _letters(settings)
            for company in companies or (await clients.paperclip.authenticate()).company_ids:
                report, issues = await _audit(settings, clients, letters, company, since)
                repaired = None
                if fix and report.findings:
                    repair = Fix(
                        clients.paperclip,
                        clients.hindsight,
                        clients.outbox,
                        clients.copies,
                        issues,
                        new_repair("audit"),
                    )
                    repaired = await repair.run(report)
                done.append((report, repaired))
                if not as_json:
                    echo(audit_text(report, repaired))
        except HandlingError as error:
            sys.stderr.write(f"✗ {error}\n")
            return ExitCode.FAILED
    if as_json:
        echo(audit_json(done))
    return 0 if all(report.clean for report, _ in done) else ExitCode.FAILED


async def _audit(
    settings: Settings, clients: ReconcileClients, letters: dict[str, str], company: str, since: float
) -> tuple[Report, dict[str, Json]]:
    with ExitStack() as bars:

        def progress(title: str) -> Progress:
            bars.close()
            return bars.enter_context(progress_bar(title))

        audit = Audit(clients.paperclip, clients.hindsight, settings.memory_policy(), letters, time.time, progress)
        return await audit.run(company, since)


async def _letters(settings: Settings) -> dict[str, str]:
    """The reason of each open dead letter, by the id of its event; none if Kafka does not tell."""
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            found = await dead_letter_topic(settings).survey(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"! without the reasons of dead letters: {error}\n")
        return {}
    return {letter.event_id: letter.reason for letter in found.open if letter.event_id}


echo: Callable[[str], None] = print
