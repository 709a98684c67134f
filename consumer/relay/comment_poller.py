"""Polls what happens to a company's comments: the audit feed first, then the issues that changed.

The audit feed reports who did what, including deletions, but not for every comment, and only to keys that may read it.
The sweep over changed issues finds the rest. Without the audit feed the sweep does everything: it reads further back,
finds deleted comments by their tombstones, and cancelled ones by their absence.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence

from consumer.errors import HandlingError, Permanent
from consumer.paperclip.client import AUDIT_PAGE
from consumer.paperclip.models import Json, is_forbidden
from consumer.relay.checkpoints import CommentPosition
from consumer.relay.enrichment import EventEnricher
from consumer.relay.event_builder import (
    CREATED,
    DELETED,
    OutgoingEvent,
    event_from_activity,
    event_from_vanished_comment,
    event_id,
)
from consumer.relay.hooks import Hook, Notice
from consumer.relay.protocols import EventSink, PaperclipFeed, PollResult
from schemas.events import SNIPPET_UNITS
from schemas.timestamps import format_timestamp, parse_timestamp

OVERLAP = 30.0
"""Seconds that are read again: the rows of a long transaction appear behind newer ones."""
MAX_EVENTS = 5_000
"""New events of the audit feed that one poll publishes, the oldest ones; the next poll publishes the newer ones."""
CHUNK = 200
"""Events that are enriched and then published together."""
LOOK_BACK, LOOK_BACK_WITHOUT_AUDIT = 3_600.0, 86_400.0
"""Seconds before the position from which an issue's comments are read."""
SETTLE_TIME = 3.0
"""Seconds by which the activity of a comment may lag behind it."""
AUDIT_RETRY = 600.0
"""Seconds until the audit feed is tried again after a 403."""
NO_AUDIT_FEED = (
    "the key may not read Paperclip's audit feed (audit:view_agent_actions): "
    "deletions are found only among the comments of the last day"
)


class CommentPoller:
    """Polls one company's comments.

    Args:
        start: seconds since the epoch; older events are not published.
    """

    def __init__(
        self,
        paperclip: PaperclipFeed,
        publisher: EventSink,
        enricher: EventEnricher,
        hook: Hook,
        company: str,
        start: float,
    ) -> None:
        self._paperclip = paperclip
        self._publisher = publisher
        self._enricher = enricher
        self._hook = hook
        self._company = company
        self._start = start
        self._forbidden_until = 0.0
        self._overlap: dict[str, float] = {}  # published events of the overlap, and when they occurred
        self._swept: dict[str, str] = {}  # issue → its updatedAt when its comments were read
        self._existing: dict[str, dict[str, float]] = {}  # issue → its comments, and when they were made

    @property
    def can_read_audit_feed(self) -> bool:
        """Whether the key may read the audit feed, as far as is known."""
        return self._forbidden_until <= self._enricher.now()

    async def poll(self, position: CommentPosition, *, full_sweep: bool) -> PollResult[CommentPosition]:
        """Publish what is new since `position`.

        Args:
            full_sweep: read the changed issues, too, for comments without activity. Without the audit feed every poll
                does so.

        Raises:
            HandlingError: as `PaperclipFeed` and `EventSink`.
        """
        activity, more = position.activity, False
        if self.can_read_audit_feed:
            try:
                activity, more = await self._poll_audit_feed(position.activity)
            except Permanent as error:
                if not is_forbidden(error):
                    raise
                if not self._forbidden_until:
                    self._hook(Notice(NO_AUDIT_FEED, {"company": self._company}))
                self._forbidden_until = self._enricher.now() + AUDIT_RETRY
        sweep = (full_sweep or not self.can_read_audit_feed) and not more
        issues, settled = await self._sweep(position.issues) if sweep else (position.issues, True)
        return PollResult(CommentPosition(activity=activity, issues=issues), more, settled)

    async def _poll_audit_feed(self, position: float) -> tuple[float, bool]:
        """Publish the feed's events; the new position, and whether newer rows are left."""
        since = max(self._start, position - OVERLAP)
        self._overlap = {id_: occurred_at for id_, occurred_at in self._overlap.items() if occurred_at >= since}
        newest, rows, count, hidden_issues = position, 0, 0, dict[str, None]()
        newest_first = deque[Json](maxlen=MAX_EVENTS)  # when it is full, the newest fall out
        async for row in self._paperclip.audit_feed(self._company, format_timestamp(since)):
            rows += 1
            if rows % AUDIT_PAGE == 0 and not self._enricher.is_fresh(row["createdAt"]):
                await self._enricher.pace.wait(1)  # the next page
            newest = max(newest, parse_timestamp(row["createdAt"]))
            if row["details"] is None:
                hidden_issues[row["entityId"]] = None
            envelope = event_from_activity(row)
            if envelope is not None and not self._was_published(envelope["eventId"]):
                count += 1
                newest_first.append(envelope)
        envelopes = list(reversed(newest_first))
        batch = self._enricher.batch()
        for first in range(0, len(envelopes), CHUNK):
            chunk = await self._enricher.enrich(envelopes[first : first + CHUNK], batch)
            await self._publisher.publish(chunk)
        self._overlap |= {envelope["eventId"]: parse_timestamp(envelope["occurredAt"]) for envelope in envelopes}
        for issue_id in hidden_issues:
            await self._read_hidden_issue(issue_id, since)
        if count > len(envelopes):
            return max(position, parse_timestamp(envelopes[-1]["occurredAt"])), True
        return newest, False

    def _was_published(self, event_id: str) -> bool:
        return event_id in self._overlap or self._publisher.was_published(event_id)

    async def _read_hidden_issue(self, issue_id: str, since: float) -> None:
        """The audit feed does not name the comments of a hidden issue, and no list shows the issue."""
        try:
            issue = await self._paperclip.issue_json(issue_id)
            if issue is not None:
                await self._publish_comments(issue, since)
        except Permanent as error:
            self._skip_issue(issue_id, error)

    async def _sweep(self, position: float) -> tuple[float, bool]:
        """Read the comments of issues that changed; the new position, and whether all comments were settled."""
        changed_since = format_timestamp(position - OVERLAP)
        issues = [issue async for issue in self._paperclip.issues(self._company, changed_since)]
        unsettled = []
        for issue in reversed(issues):
            try:
                if not await self._publish_comments(issue, position):
                    unsettled.append(parse_timestamp(issue["updatedAt"]))
            except Permanent as error:
                self._skip_issue(issue["id"], error)
        newest = max([position, *(parse_timestamp(issue["updatedAt"]) for issue in issues)])
        self._forget_unchanged_issues(newest - LOOK_BACK_WITHOUT_AUDIT)
        return max(position, min([newest, *unsettled])), not unsettled

    def _forget_unchanged_issues(self, before: float) -> None:
        """Issues that have not changed for a day are read anew when they change."""
        for issue_id in [id_ for id_, updated_at in self._swept.items() if parse_timestamp(updated_at) < before]:
            del self._swept[issue_id]
            self._existing.pop(issue_id, None)

    def _skip_issue(self, issue_id: str, error: HandlingError) -> None:
        self._hook(Notice("skipping an issue that cannot be read", {"issue": issue_id, "error": str(error)}))

    async def _publish_comments(self, issue: Json, position: float) -> bool:
        """Read an issue's comments and publish what is new.

        Returns:
            False if a comment was too young: it is left to the audit feed, which knows more about it.
        """
        if self._swept.get(issue["id"]) == issue["updatedAt"]:
            return True
        if not self._enricher.is_fresh(issue["updatedAt"]):
            await self._enricher.pace.wait(2)  # its comments, and perhaps its activity
        floor = max(self._start, position - (LOOK_BACK if self.can_read_audit_feed else LOOK_BACK_WITHOUT_AUDIT))
        comments = [self._cut_old_body(comment) async for comment in self._comments_since(issue["id"], floor)]
        comments.reverse()
        history = self._enricher.issue_history(issue)
        new = [comment for comment in comments if self._is_new(comment)]
        settled = [comment for comment in new if not self._is_young(comment)]
        events = [await self._enricher.enrich_comment(comment, history) for comment in settled]
        if not self.can_read_audit_feed:
            events += await self._cancelled(issue, comments, floor)
        await self._publisher.publish(events)
        if len(settled) < len(new):
            return False
        self._swept[issue["id"]] = issue["updatedAt"]
        return True

    def _is_new(self, comment: Json) -> bool:
        event_type = DELETED if comment["deletedAt"] is not None else CREATED
        occurred_at = parse_timestamp(comment["deletedAt"] or comment["createdAt"])
        return occurred_at >= self._start and not self._was_published(event_id(event_type, comment["id"]))

    def _is_young(self, comment: Json) -> bool:
        age = self._enricher.now() - parse_timestamp(comment["createdAt"])
        return self.can_read_audit_feed and 0 <= age < SETTLE_TIME

    async def _comments_since(self, issue_id: str, floor: float) -> AsyncIterator[Json]:
        async for comment in self._paperclip.comments(issue_id, oldest_first=False):
            if parse_timestamp(comment["createdAt"]) < floor:
                return
            yield comment

    def _cut_old_body(self, comment: Json) -> Json:
        """Without a body that is not published anyway: bodies can be megabytes, and a history is long."""
        if self._enricher.is_fresh(comment["createdAt"]):
            return comment
        return comment | {"body": (comment["body"] or "")[:SNIPPET_UNITS]}

    async def _cancelled(self, issue: Json, comments: Sequence[Json], floor: float) -> list[OutgoingEvent]:
        """Events of cancelled comments. They leave no row: known comments that should have been read, and were not."""
        before = self._existing.get(issue["id"], {})
        existing = {comment["id"]: parse_timestamp(comment["createdAt"]) for comment in comments}
        self._existing[issue["id"]] = existing
        missing = [id_ for id_, created_at in before.items() if created_at >= floor and id_ not in existing]
        gone = [id_ for id_ in missing if await self._paperclip.comment_json(issue["id"], id_) is None]
        return [OutgoingEvent(event_from_vanished_comment(id_, issue, at=issue["updatedAt"])) for id_ in gone]
