"""Publishes a company's past comments, the oldest first, as replays: whoever handles one asks Paperclip for it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from consumer.errors import Permanent
from consumer.paperclip.client import PaperclipClient
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import Announcement, Json
from consumer.relay.publisher import Outbox
from consumer.relay.times import instant
from consumer.relay.work import Progress, each_of
from schemas.events import SNIPPET_UNITS

SAVED_EVERY = 200
"""Comments between two notes of how far was published."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to publish.

    Attributes:
        since: seconds since the epoch; only comments made then or later.
        issue: only this issue's.
        rate: at most so many comments a second; None: as fast as Kafka takes them.
        repair: text that has Hindsight work again what it knows; "" for none.
    """

    company: str
    since: float = 0.0
    issue: str | None = None
    rate: float | None = None
    repair: str = ""


@dataclass(slots=True)
class Survey:
    """What there is: comments, the oldest first, without their bodies' rest; issues that could not be read, and why."""

    announcements: list[Announcement] = field(default_factory=list)
    deleted: int = 0
    passed_over: dict[str, str] = field(default_factory=dict)


async def survey(client: PaperclipClient, copies: Copies, wanted: Wanted, progress: Progress) -> Survey:
    """Read which comments there are. Raises from `consumer.errors`."""
    found, issues = Survey(), [each async for each in issues_of(client, wanted.company, wanted.since, wanted.issue)]

    async def read(issue: Json) -> None:
        then = copies.issue_then(issue)
        try:
            async for comment in client.comments(issue["id"], oldest_first=False):
                if instant(comment["createdAt"]) < wanted.since:
                    break
                if comment["deletedAt"] is not None:
                    found.deleted += 1
                    continue
                light = comment | {"body": (comment["body"] or "")[:SNIPPET_UNITS]}
                announcement = await copies.announce_read(light, then, past=True, repair=wanted.repair)
                found.announcements.append(announcement)
        except Permanent as error:
            found.passed_over[issue["id"]] = str(error)

    await each_of(issues, read, progress)
    found.announcements.sort(key=lambda each: (each.occurred_at, each.subject))
    return found


async def publish(
    announcements: list[Announcement],
    outbox: Outbox,
    save: Callable[[float], Awaitable[None]],
    progress: Progress,
    rate: float | None,
) -> None:
    """Publish them in their order.

    Args:
        save: notes up to where, by the time a comment was made, all is acknowledged.

    Raises:
        UpstreamDown: Kafka does not take them; what was saved need not be published again.
    """
    started = time.monotonic()
    size = SAVED_EVERY if rate is None else max(1, min(SAVED_EVERY, int(rate)))
    for first in range(0, len(announcements), size):
        batch = announcements[first : first + size]
        await outbox.send(batch)
        await save(instant(batch[-1].occurred_at))
        progress(first + len(batch), len(announcements))
        if rate is not None:
            await asyncio.sleep(max(0.0, started + (first + len(batch)) / rate - time.monotonic()))


async def issues_of(
    client: PaperclipClient, company: str, since: float, issue: str | None = None
) -> AsyncIterator[Json]:
    """The company's issues on which something happened since, seconds since the epoch; or the one that is named."""
    if issue is not None:
        found = await client.issue_json(issue)
        if found is not None and found["companyId"] == company:
            yield found
        return
    async for each in client.issues(company):
        if instant(each.get("lastActivityAt") or each["updatedAt"]) >= since:
            yield each
