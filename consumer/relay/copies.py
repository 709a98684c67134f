"""The whole objects that events carry, so that who handles them need not ask Paperclip.

A copy is a help, never a condition: an event whose object cannot be had goes without.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer.errors import HandlingError, UpstreamDown
from consumer.paperclip.feed import FeedClient
from consumer.relay.envelopes import (
    CREATED,
    STARTED,
    Announcement,
    Json,
    issue_copy,
    of_comment,
    run_copy,
    wake_comment,
)
from consumer.relay.issues import Assignees, IssuesThen, IssueThen
from consumer.relay.signals import Notify, Told
from consumer.relay.times import instant

FRESH = 60.0
"""Seconds after which a comment is published as a replay: who handles it asks how it stands."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Makes announcements of envelopes.

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
    assignees: Assignees = field(default_factory=Assignees)

    def issue_then(self, issue: Json) -> IssueThen:
        """An issue that was read just now, asked for what it was."""
        return IssueThen(self.client, issue, self.assignees, self.now)

    def fresh(self, time: str) -> bool:
        """Whether something of this time is still as it was announced."""
        return self.now() - instant(time) < FRESH

    async def announce(self, envelopes: Sequence[Json]) -> list[Announcement]:
        """Announcements with the objects that Paperclip is asked for. Raises `UpstreamDown`."""
        then = IssuesThen(self.client, self.assignees, self.now)
        return await asyncio.gather(*(self._announce(each, then) for each in envelopes))

    async def announce_read(
        self, comment: Json, issue: IssueThen, *, past: bool = False, repair: str = ""
    ) -> Announcement:
        """An announcement of a comment that was read just now, and so was its issue. Raises from `consumer.errors`.

        Args:
            past: it is published as a replay, however fresh. repair: see `Announcement`.
        """
        envelope = of_comment(comment, issue.now)
        replay = envelope["eventType"] == CREATED and (past or not self.fresh(comment["createdAt"]))
        if envelope["eventType"] != CREATED or not self.enabled:
            return Announcement(envelope, replay=replay, repair=repair)
        copies = {} if replay else {"comment": comment}
        if self._needs_issue(comment["authorAgentId"] or comment["derivedAuthorAgentId"]):
            copies["issue"] = issue_copy(await issue.at(comment["createdAt"]), described=False)
        return Announcement(envelope, copies, replay=replay, repair=repair)

    async def _announce(self, envelope: Json, then: IssuesThen) -> Announcement:
        copies: dict[str, Json] = {}
        ask = {CREATED: self._of_comment, STARTED: self._of_run}.get(envelope["eventType"])
        try:
            if ask is not None and self.enabled:
                copies = await ask(envelope, then)
        except UpstreamDown:
            raise
        except HandlingError as error:
            self.notify(Told("an event goes without copies", {"event_id": envelope["eventId"], "error": str(error)}))
        replay = envelope["eventType"] == CREATED and not self.fresh(envelope["occurredAt"])
        return Announcement(envelope, copies, replay=replay)

    def _needs_issue(self, agent: str | None) -> bool:
        return self.issues or agent is None

    async def _of_comment(self, envelope: Json, then: IssuesThen) -> dict[str, Json]:
        issue_id, payload, made = envelope["entityId"], envelope["payload"], envelope["occurredAt"]
        asked: dict[str, Coroutine[Any, Any, Json | None]] = {}
        if self.fresh(made):
            asked["comment"] = self.client.comment(issue_id, payload["commentId"])
        if self._needs_issue(payload["agentId"]):
            asked["issue"] = then.at(issue_id, made)
        found = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        copies = {name: each for name, each in found.items() if each is not None}
        return copies | ({"issue": issue_copy(copies["issue"], described=False)} if "issue" in copies else {})

    async def _of_run(self, envelope: Json, then: IssuesThen) -> dict[str, Json]:
        issue_id, started = envelope["payload"]["issueId"], envelope["occurredAt"]
        if issue_id is None or not self.fresh(started):  # nothing is recalled for it
            return {}
        run = await self.client.run(envelope["payload"]["runId"])
        if run is None:
            return {}
        context = run.get("contextSnapshot") or {}
        wake = context.get("paperclipWake") or await self._wake(context, issue_id, then, started)
        copies = {"run": run_copy(run | {"contextSnapshot": context | {"paperclipWake": wake}})}
        if self.issues and (issue := await then.at(issue_id, started)) is not None:
            copies["issue"] = issue_copy(issue, described=True)
        return copies

    async def _wake(self, context: Json, issue_id: str, then: IssuesThen, started: str) -> Json:
        """What wakes a run, in the part that matters here: Paperclip writes it some 0.2 s after the run has started."""
        ids = context.get("wakeCommentIds") or [id_ for id_ in [context.get("wakeCommentId")] if id_]
        issue, *comments = await asyncio.gather(
            then.at(issue_id, started), *(self.client.comment(issue_id, each) for each in ids)
        )
        return {
            "issue": issue_copy(issue, described=True) if issue is not None else None,
            "comments": [wake_comment(each) for each in comments if each is not None],
        }
