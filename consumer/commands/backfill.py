"""`paperclip-memory backfill`."""

from collections.abc import Callable
from functools import partial

from consumer.commands.progress import progress_bar
from consumer.commands.reconcile_clients import ReconcileClients, new_repair, open_reconcile_clients
from consumer.errors import ExitCode, HandlingError
from consumer.kafka.options import groupless_consumer, translate_kafka_errors
from consumer.reconcile.backfill import Survey, Wanted, publish, survey
from consumer.relay.checkpoints import Checkpoints
from consumer.relay.times import instant, iso
from consumer.settings.model import Settings


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
    wanted = Wanted(company, since, issue, rate, new_repair("backfill") if force else "")
    async with open_reconcile_clients(settings) as clients:
        try:
            with progress_bar("reading issues") as progress:
                found = await survey(clients.paperclip, clients.copies, wanted, progress)
            echo(_found(wanted, found))
            if not dry_run:
                await _publish(settings, clients, wanted, found)
        except HandlingError as error:
            echo(f"✗ {error}")
            return ExitCode.FAILED
    return ExitCode.FAILED if found.passed_over else 0


async def _publish(settings: Settings, clients: ReconcileClients, wanted: Wanted, found: Survey) -> None:
    checkpoints = Checkpoints(
        clients.publisher, partial(groupless_consumer, settings), settings.topic_relay_checkpoints
    )
    with translate_kafka_errors(settings):
        await checkpoints.read()
    name = ":".join([wanted.company, wanted.issue or "*", iso(wanted.since), "forced" if wanted.repair else "plain"])
    reached, announcements = checkpoints.backfilled(name), found.announcements
    if reached is not None:
        announcements = [each for each in announcements if instant(each.occurred_at) >= reached]
        echo(f"going on at {iso(reached)}, where the same command was left: {len(announcements)} to go")
    with progress_bar("publishing") as progress:
        await publish(announcements, clients.outbox, partial(checkpoints.write_backfill, name), progress, wanted.rate)
    await checkpoints.write_backfill(name, None)
    echo(f"published {len(announcements)} comments to {settings.topic_issue_comments}")


def _found(wanted: Wanted, found: Survey) -> str:
    lines = [f"company {wanted.company}: {len(found.announcements)} comments since {iso(wanted.since)}"]
    if found.announcements:
        lines[0] += f", the oldest of {found.announcements[0].occurred_at}"
    if found.deleted:
        lines.append(f"{found.deleted} deleted ones are left out")
    lines += [f"issue {issue} could not be read: {why}" for issue, why in found.passed_over.items()]
    return "\n".join(lines)


echo: Callable[[str], None] = print
