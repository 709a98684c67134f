"""`paperclip-memory backfill`."""

from collections.abc import Callable
from functools import partial

from consumer.commands.progress import progress_bar
from consumer.commands.reconcile_clients import ReconcileClients, new_repair, open_reconcile_clients
from consumer.errors import ExitCode, HandlingError
from consumer.kafka.options import groupless_consumer, translate_kafka_errors
from consumer.reconcile.backfill import BackfillPlan, BackfillRequest, plan_backfill, publish_backfill, remaining_events
from consumer.relay.checkpoints import Checkpoints
from consumer.settings.model import Settings
from schemas.timestamps import format_timestamp


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
    request = BackfillRequest(company, since, issue, rate, new_repair("backfill") if force else "")
    async with open_reconcile_clients(settings) as clients:
        try:
            with progress_bar("reading issues") as progress:
                plan = await plan_backfill(clients.paperclip, clients.enricher, request, progress)
            echo(_plan_text(request, plan))
            if not dry_run:
                await _publish(settings, clients, request, plan)
        except HandlingError as error:
            echo(f"✗ {error}")
            return ExitCode.FAILED
    return ExitCode.FAILED if plan.unreadable_issues else 0


async def _publish(settings: Settings, clients: ReconcileClients, request: BackfillRequest, plan: BackfillPlan) -> None:
    make_consumer = partial(groupless_consumer, settings)
    checkpoints = Checkpoints(clients.publisher, make_consumer, settings.topic_relay_checkpoints)
    with translate_kafka_errors(settings):
        await checkpoints.read()
    name = ":".join([request.company, request.issue or "*", "forced" if request.repair else "plain"])
    position = checkpoints.backfill_position(name)
    remaining = len(remaining_events(request, plan, position))
    if remaining < len(plan.events):
        echo(f"resuming an earlier backfill: {remaining} comments to publish")
    save = partial(checkpoints.write_backfill_position, name)
    with progress_bar("publishing") as progress:
        published = await publish_backfill(request, plan, position, clients.events, save, progress)
    echo(f"published {published} comments to {settings.topic_issue_comments}")


def _plan_text(request: BackfillRequest, plan: BackfillPlan) -> str:
    lines = [f"company {request.company}: {len(plan.events)} comments since {format_timestamp(request.since)}"]
    if plan.events:
        lines[0] += f", the oldest of {plan.events[0].occurred_at}"
    if plan.deleted:
        lines.append(f"{plan.deleted} deleted comments are left out")
    lines += [f"issue {issue} could not be read: {why}" for issue, why in plan.unreadable_issues.items()]
    return "\n".join(lines)


echo: Callable[[str], None] = print
