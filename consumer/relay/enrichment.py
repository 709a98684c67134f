"""Embeds whole objects in events, so that their handlers need not ask Paperclip.

Embedding helps and is never a condition: an event whose object cannot be had is published without it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from consumer.errors import HandlingError, UpstreamDown
from consumer.paperclip.models import Json
from consumer.relay.assignee_history import AssigneeCache, IssueHistories, IssueHistory
from consumer.relay.concurrency import Pace, map_concurrently
from consumer.relay.event_builder import (
    CREATED,
    STARTED,
    OutgoingEvent,
    event_from_comment,
    trim_issue,
    trim_run,
    trim_wake_comment,
)
from consumer.relay.hooks import Hook, Notice
from consumer.relay.protocols import PaperclipFeed
from schemas.paperclip import is_uuid
from schemas.timestamps import parse_timestamp

FRESH = 60.0
"""Seconds after which a comment is published as a replay: its handler asks for the current state."""


class Batch(NamedTuple):
    """Shared by the events of one poll: issues read once, and runs read just now, by id."""

    issues: IssueHistories
    runs: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class EventEnricher:
    """Makes outgoing events of envelopes.

    Attributes:
        enabled: False leaves all fetching to the events' handlers.
        every_issue: embed the issue in every event, for its user; not only where the envelope names no agent.
        now: seconds since the epoch.
        pace: of look-ups for events that are not fresh.
    """

    paperclip: PaperclipFeed
    hook: Hook
    enabled: bool
    every_issue: bool
    now: Callable[[], float]
    assignees: AssigneeCache = field(default_factory=AssigneeCache)
    pace: Pace = field(default_factory=Pace)

    def issue_history(self, issue: Json) -> IssueHistory:
        """The history of an issue that was read just now."""
        return IssueHistory(self.paperclip, issue, self.assignees, self.now)

    def is_fresh(self, time: str) -> bool:
        """Whether an object of this time, ISO 8601, can be embedded as it is."""
        return self.now() - parse_timestamp(time) < FRESH

    def batch(self, runs: Mapping[str, Json] | None = None) -> Batch:
        """A batch for the events of one poll. `runs`: those that were read just now, by id."""
        return Batch(IssueHistories(self.paperclip, self.assignees, self.now), runs or {})

    async def enrich(self, envelopes: Sequence[Json], batch: Batch) -> list[OutgoingEvent]:
        """Events with the objects that Paperclip gives. Raises `UpstreamDown`."""
        return await map_concurrently(lambda envelope: self._enrich(envelope, batch), envelopes)

    async def enrich_comment(
        self, comment: Json, issue: IssueHistory, *, past: bool = False, repair: str = ""
    ) -> OutgoingEvent:
        """The event of a comment that was read just now together with its issue. Raises from `consumer.errors`.

        Args:
            past: publish it as a replay, however fresh it is.
            repair: see `OutgoingEvent`.
        """
        envelope = event_from_comment(comment, issue.current)
        replay = envelope["eventType"] == CREATED and (past or not self.is_fresh(comment["createdAt"]))
        if envelope["eventType"] != CREATED or not self.enabled:
            return OutgoingEvent(envelope, replay=replay, repair=repair)
        embedded = {} if replay else {"comment": comment}
        if self._needs_issue(comment["authorAgentId"] or comment["derivedAuthorAgentId"]):
            embedded["issue"] = trim_issue(await issue.at(comment["createdAt"]), description=False)
        return OutgoingEvent(envelope, embedded, replay=replay, repair=repair)

    async def _enrich(self, envelope: Json, batch: Batch) -> OutgoingEvent:
        embedded: dict[str, Json] = {}
        load = {CREATED: self._load_for_comment, STARTED: self._load_for_run}.get(envelope["eventType"])
        try:
            if load is not None and self.enabled:
                embedded = await load(envelope, batch)
        except UpstreamDown:
            raise
        except HandlingError as error:
            fields = {"event_id": envelope["eventId"], "error": str(error)}
            self.hook(Notice("publishing an event without its embedded objects", fields))
        replay = envelope["eventType"] == CREATED and not self.is_fresh(envelope["occurredAt"])
        return OutgoingEvent(envelope, embedded, replay=replay)

    def _needs_issue(self, agent: str | None) -> bool:
        return self.every_issue or agent is None

    async def _load_for_comment(self, envelope: Json, batch: Batch) -> dict[str, Json]:
        issue_id, payload, created_at = envelope["entityId"], envelope["payload"], envelope["occurredAt"]
        requests: dict[str, Coroutine[Any, Any, Json | None]] = {}
        fresh = self.is_fresh(created_at)
        if fresh:
            requests["comment"] = self.paperclip.comment_json(issue_id, payload["commentId"])
        if self._needs_issue(payload["agentId"]):
            requests["issue"] = batch.issues.issue_at(issue_id, created_at, pace=None if fresh else self.pace)
        answers = dict(zip(requests, await asyncio.gather(*requests.values()), strict=True))
        embedded = {name: answer for name, answer in answers.items() if answer is not None}
        if "issue" in embedded:
            embedded["issue"] = trim_issue(embedded["issue"], description=False)
        return embedded

    async def _load_for_run(self, envelope: Json, batch: Batch) -> dict[str, Json]:
        run_id, issue_id = envelope["payload"]["runId"], envelope["payload"]["issueId"]
        if issue_id is None or not is_uuid(issue_id) or not self.is_fresh(envelope["occurredAt"]):
            return {}
        run = batch.runs.get(run_id) or await self.paperclip.run_json(run_id)
        if run is None:
            return {}
        context = run.get("contextSnapshot") or {}
        wake, issue = context.get("paperclipWake"), None
        if wake is None:
            wake, issue = await self._load_wake(context, issue_id)
        elif self.every_issue:
            issue = await self.paperclip.issue_json(issue_id)
        embedded = {"run": trim_run(run | {"contextSnapshot": context | {"paperclipWake": wake}})}
        if self.every_issue and issue is not None:
            embedded["issue"] = trim_issue(issue, description=True)
        return embedded

    async def _load_wake(self, context: Json, issue_id: str) -> tuple[Json, Json | None]:
        """The part of a run's `paperclipWake` that a recall needs, and the issue.

        Paperclip writes `paperclipWake` some 0.2 s after the run has started.
        """
        ids = context.get("wakeCommentIds") or [id_ for id_ in [context.get("wakeCommentId")] if id_]
        issue, *comments = await asyncio.gather(
            self.paperclip.issue_json(issue_id), *(self.paperclip.comment_json(issue_id, id_) for id_ in ids)
        )
        wake = {
            "issue": trim_issue(issue, description=True) if issue is not None else None,
            "comments": [trim_wake_comment(comment) for comment in comments if comment is not None],
        }
        return wake, issue
