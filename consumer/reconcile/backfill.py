"""Publishes a company's past comments, the oldest first, as replays: their handlers read them from Paperclip."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from consumer.errors import Permanent
from consumer.paperclip.models import Json
from consumer.reconcile.issues import active_issues
from consumer.relay.checkpoints import BackfillPosition
from consumer.relay.concurrency import Progress, map_concurrently
from consumer.relay.enrichment import EventEnricher
from consumer.relay.event_builder import OutgoingEvent
from consumer.relay.protocols import EventSink, PaperclipFeed
from schemas.events import SNIPPET_UNITS
from schemas.timestamps import parse_timestamp

SAVE_INTERVAL = 200
"""Comments after which the position is saved."""
MAX_SKIPPED = 1_000
"""Skipped issues that a position names at most."""


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The comments to publish.

    Attributes:
        since: seconds since the epoch; only comments made then or later.
        issue: only this issue's.
        rate: at most so many comments a second; None: as fast as Kafka takes them.
        repair: text that makes Hindsight process known comments again; "" for none.
    """

    company: str
    since: float = 0.0
    issue: str | None = None
    rate: float | None = None
    repair: str = ""


@dataclass(slots=True)
class BackfillPlan:
    """The events of a backfill, the oldest first, and what is left out.

    Attributes:
        deleted: number of deleted comments.
        unreadable_issues: why each could not be read.
    """

    events: list[OutgoingEvent] = field(default_factory=list)
    deleted: int = 0
    unreadable_issues: dict[str, str] = field(default_factory=dict)


async def plan_backfill(
    paperclip: PaperclipFeed, enricher: EventEnricher, request: BackfillRequest, progress: Progress
) -> BackfillPlan:
    """Read the comments that exist. Raises from `consumer.errors`."""
    plan = BackfillPlan()
    issues = [issue async for issue in active_issues(paperclip, request.company, request.since, request.issue)]

    async def read(issue: Json) -> None:
        history = enricher.issue_history(issue)
        try:
            async for comment in paperclip.comments(issue["id"], oldest_first=False):
                if parse_timestamp(comment["createdAt"]) < request.since:
                    break
                if comment["deletedAt"] is not None:
                    plan.deleted += 1
                    continue
                light = comment | {"body": (comment["body"] or "")[:SNIPPET_UNITS]}
                plan.events.append(await enricher.enrich_comment(light, history, past=True, repair=request.repair))
        except Permanent as error:
            plan.unreadable_issues[issue["id"]] = str(error)

    await map_concurrently(read, issues, progress)
    plan.events.sort(key=lambda event: (event.occurred_at, event.key))
    return plan


async def publish_backfill(
    request: BackfillRequest,
    plan: BackfillPlan,
    position: BackfillPosition | None,
    publisher: EventSink,
    save: Callable[[BackfillPosition | None], Awaitable[None]],
    progress: Progress,
) -> int:
    """Publish the events of a plan in their order, and return their number.

    Args:
        position: of an earlier backfill that was interrupted, or skipped issues; None: start at the beginning.
        save: keeps the position; None: the backfill is finished.

    Raises:
        UpstreamDown: Kafka does not take them; what was saved need not be published again.
    """
    events, skipped = remaining_events(request, plan, position), dict.fromkeys(plan.unreadable_issues)
    reached = request.since
    if position is not None and request.since >= position.since:
        reached = max(reached, position.reached)
        skipped = dict.fromkeys(position.skipped) | skipped
    started = time.monotonic()
    size = SAVE_INTERVAL if request.rate is None else max(1, min(SAVE_INTERVAL, int(request.rate)))
    for first in range(0, len(events), size):
        batch = events[first : first + size]
        await publisher.publish(batch)
        reached = max(reached, parse_timestamp(batch[-1].occurred_at))
        await save(_position(request, reached, skipped))
        progress(first + len(batch), len(events))
        if request.rate is not None:
            await asyncio.sleep(max(0.0, started + (first + len(batch)) / request.rate - time.monotonic()))
    await save(_position(request, reached, plan.unreadable_issues) if plan.unreadable_issues else None)
    return len(events)


def remaining_events(
    request: BackfillRequest, plan: BackfillPlan, position: BackfillPosition | None
) -> list[OutgoingEvent]:
    """The events that an earlier backfill has not published. One that began later than this request does not count."""
    if position is None or request.since < position.since:
        return plan.events
    return [
        event
        for event in plan.events
        if parse_timestamp(event.occurred_at) >= position.reached or event.envelope["entityId"] in position.skipped
    ]


def _position(request: BackfillRequest, reached: float, skipped: Collection[str]) -> BackfillPosition | None:
    """The position to keep; None if so many issues were skipped that starting again is simpler."""
    if len(skipped) > MAX_SKIPPED:
        return None
    return BackfillPosition(since=request.since, reached=reached, skipped=tuple(skipped))
