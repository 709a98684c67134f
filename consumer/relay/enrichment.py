"""The whole objects that events carry, so that who handles them need not ask Paperclip.

A copy is a help, never a condition: an event whose object cannot be had goes without.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from consumer.errors import HandlingError, UpstreamDown
from consumer.paperclip.client import PaperclipClient
from consumer.relay.assignee_history import Assignees, IssuesThen, IssueThen
from consumer.relay.event_builder import (
    CREATED,
    STARTED,
    Announcement,
    Json,
    issue_copy,
    of_comment,
    run_copy,
    wake_comment,
)
from consumer.relay.signals import Notify, Told
from consumer.relay.times import instant

FRESH = 60.0
"""Seconds after which a comment is published as a replay: who handles it asks how it stands."""


class _Batch(NamedTuple):
    """What the announcements of one look share: issues asked for once, and runs read just now, by id."""

    issues: IssuesThen
    runs: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Copies:
    """Makes announcements of envelopes.

    Attributes:
        enabled: false leaves all fetching to who handles the events.
        issues: the issue is needed of every event, for its user; not only where no agent or no title is known.
        now: seconds since the epoch.
    """

    client: PaperclipClient
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

    async def announce(self, envelopes: Sequence[Json], runs: Mapping[str, Json] | None = None) -> list[Announcement]:
        """Announcements with the objects that Paperclip is asked for. Raises `UpstreamDown`.

        Args:
            runs: those that were read just now, by id.
        """
        batch = _Batch(IssuesThen(self.client, self.assignees, self.now), runs or {})
        return await asyncio.gather(*(self._announce(each, batch) for each in envelopes))

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

    async def _announce(self, envelope: Json, batch: _Batch) -> Announcement:
        copies: dict[str, Json] = {}
        ask = {CREATED: self._of_comment, STARTED: self._of_run}.get(envelope["eventType"])
        try:
            if ask is not None and self.enabled:
                copies = await ask(envelope, batch)
        except UpstreamDown:
            raise
        except HandlingError as error:
            self.notify(Told("an event goes without copies", {"event_id": envelope["eventId"], "error": str(error)}))
        replay = envelope["eventType"] == CREATED and not self.fresh(envelope["occurredAt"])
        return Announcement(envelope, copies, replay=replay)

    def _needs_issue(self, agent: str | None) -> bool:
        return self.issues or agent is None

    async def _of_comment(self, envelope: Json, batch: _Batch) -> dict[str, Json]:
        issue_id, payload, made = envelope["entityId"], envelope["payload"], envelope["occurredAt"]
        asked: dict[str, Coroutine[Any, Any, Json | None]] = {}
        if self.fresh(made):
            asked["comment"] = self.client.comment_json(issue_id, payload["commentId"])
        if self._needs_issue(payload["agentId"]):
            asked["issue"] = batch.issues.at(issue_id, made)
        found = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        copies = {name: each for name, each in found.items() if each is not None}
        return copies | ({"issue": issue_copy(copies["issue"], described=False)} if "issue" in copies else {})

    async def _of_run(self, envelope: Json, batch: _Batch) -> dict[str, Json]:
        run_id, issue_id = envelope["payload"]["runId"], envelope["payload"]["issueId"]
        if issue_id is None or not self.fresh(envelope["occurredAt"]):  # nothing is recalled for it
            return {}
        run = batch.runs.get(run_id) or await self.client.run_json(run_id)
        if run is None:
            return {}
        context = run.get("contextSnapshot") or {}
        wake, issue = context.get("paperclipWake"), None
        if wake is None:
            wake, issue = await self._wake(context, issue_id)
        elif self.issues:
            issue = await self.client.issue_json(issue_id)
        copies = {"run": run_copy(run | {"contextSnapshot": context | {"paperclipWake": wake}})}
        return copies | ({"issue": issue_copy(issue, described=True)} if self.issues and issue is not None else {})

    async def _wake(self, context: Json, issue_id: str) -> tuple[Json, Json | None]:
        """What wakes a run, in the part that matters here, and the issue.

        Paperclip writes it some 0.2 s after the run has started.
        """
        ids = context.get("wakeCommentIds") or [id_ for id_ in [context.get("wakeCommentId")] if id_]
        issue, *comments = await asyncio.gather(
            self.client.issue_json(issue_id), *(self.client.comment_json(issue_id, each) for each in ids)
        )
        wake = {
            "issue": issue_copy(issue, described=True) if issue is not None else None,
            "comments": [wake_comment(each) for each in comments if each is not None],
        }
        return wake, issue
