"""The whole objects that fresh events carry, so that who handles them need not ask Paperclip.

A copy is a help, never a condition: an event whose object cannot be had goes without.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from consumer.errors import HandlingError, UpstreamDown
from consumer.paperclip.feed import FeedClient
from consumer.relay.envelopes import CREATED, STARTED, Announcement, Json, issue_copy, run_copy
from consumer.relay.signals import Notify, Told
from consumer.relay.times import instant

FRESH = 60.0
"""Seconds after which an event gets no copies, and a comment is a replay: things may have changed since."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Makes announcements of one company's envelopes.

    Attributes:
        enabled: false leaves all fetching to who handles the events.
        issues: the issue is needed of every event, for its user; not only where no agent or no title is known.
        now: seconds since the epoch.
    """

    client: FeedClient
    notify: Notify
    enabled: bool
    issues: bool
    now: Callable[[], float]

    def fresh(self, time: str) -> bool:
        """Whether something of this time is still as it was announced."""
        return self.now() - instant(time) < FRESH

    async def announce(self, envelope: Json) -> Announcement:
        """An announcement with the objects that Paperclip is asked for. Raises `UpstreamDown`."""
        is_comment, is_start = envelope["eventType"] == CREATED, envelope["eventType"] == STARTED
        if not self.fresh(envelope["occurredAt"]):
            return Announcement(envelope, replay=is_comment)
        if not self.enabled or not (is_comment or is_start):
            return Announcement(envelope)
        try:
            copies = await (self._comment(envelope) if is_comment else self._run(envelope))
        except UpstreamDown:
            raise
        except HandlingError as error:
            self.notify(Told("an event goes without copies", {"event_id": envelope["eventId"], "error": str(error)}))
            copies = {}
        return Announcement(envelope, copies)

    def announce_read(self, envelope: Json, comment: Json, issue: Json) -> Announcement:
        """An announcement with objects that were read just now."""
        if envelope["eventType"] != CREATED:
            return Announcement(envelope)
        if not self.fresh(comment["createdAt"]):
            return Announcement(envelope, replay=True)
        if not self.enabled:
            return Announcement(envelope)
        copies = {"comment": comment}
        if self.issues or not (comment["authorAgentId"] or comment["derivedAuthorAgentId"]):
            copies["issue"] = issue_copy(issue, described=False)
        return Announcement(envelope, copies)

    async def _comment(self, envelope: Json) -> dict[str, Json]:
        issue_id, payload = envelope["entityId"], envelope["payload"]
        asked: list[Awaitable[Json | None]] = [self.client.comment(issue_id, payload["commentId"])]
        if self.issues or payload["agentId"] is None:
            asked.append(self.client.issue(issue_id))
        comment, issue = [*await asyncio.gather(*asked), None][:2]
        copies = {"comment": comment} if comment is not None else {}
        return copies | ({"issue": issue_copy(issue, described=False)} if issue is not None else {})

    async def _run(self, envelope: Json) -> dict[str, Json]:
        run = await self.client.run(envelope["payload"]["runId"])
        copies = {"run": run_copy(run)} if run is not None else {}
        wake = (copies["run"]["contextSnapshot"].get("paperclipWake") or {}) if copies else {}
        issue_id = envelope["payload"]["issueId"]
        if issue_id is not None and (self.issues or not wake.get("issue")):
            issue = await self.client.issue(issue_id)
            copies |= {"issue": issue_copy(issue, described=True)} if issue is not None else {}
        return copies
