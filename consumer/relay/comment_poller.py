"""Follows what happens to a company's comments: the audit feed first, then the issues that changed.

The audit feed tells who did what, deletions too, but not of every comment, and only to keys that may read it. The sweep
over changed issues finds the rest. Without the audit feed the sweep does it all: it reads further back, and finds
deleted comments by their tombstones, and cancelled ones by their absence.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from consumer.errors import HandlingError, Permanent
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import is_forbidden
from consumer.relay.checkpoints import CommentPosition
from consumer.relay.enrichment import Copies
from consumer.relay.event_builder import (
    CREATED,
    DELETED,
    Announcement,
    Json,
    event_id,
    of_activity,
    of_vanished,
)
from consumer.relay.publisher import Outbox
from consumer.relay.signals import Notify, Told
from consumer.relay.times import instant, iso
from schemas.events import SNIPPET_UNITS

OVERLAP = 30.0
"""Seconds that are read again: a long transaction's rows appear behind newer ones."""
CATCH_UP = 5_000
"""Rows of activity that are held at once; what is newer is read again afterwards."""
LOOK_BACK, LOOK_BACK_ALONE = 3_600.0, 86_400.0
"""Seconds that an issue's comments are read back beyond the last look; the second without the audit feed."""
SETTLING = 3.0
"""Seconds that the activity of a comment may be behind it."""
ASK_AGAIN = 600.0
"""Seconds until the audit feed is tried again after it was forbidden."""
NO_AUDIT = (
    "the key may not read Paperclip's audit feed (audit:view_agent_actions): deletions are found only by reading the "
    "comments of the last day again"
)


class Looked(NamedTuple):
    """What a look led to: where, whether there is more to read at once, and whether all that was seen is settled."""

    position: CommentPosition
    more: bool
    settled: bool


class CommentFeed:
    """One company's comments.

    Args:
        start: seconds since the epoch; nothing that happened before is published.
    """

    def __init__(
        self, client: PaperclipClient, outbox: Outbox, copies: Copies, notify: Notify, company: str, start: float
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._copies = copies
        self._notify = notify
        self._company = company
        self._start = start
        self._forbidden_until = 0.0
        self._read: dict[str, str] = {}  # issue → its updatedAt when its comments were read
        self._living: dict[str, dict[str, float]] = {}  # issue → its comments, and when they were made

    @property
    def audited(self) -> bool:
        """Whether the key may read the audit feed, as far as is known."""
        return self._forbidden_until <= self._copies.now()

    async def look(self, at: CommentPosition, *, thorough: bool) -> Looked:
        """Publish what is new.

        Args:
            thorough: look for comments that no activity tells of, too. Done in any case without the audit feed.
        """
        activity, more = at.activity, False
        if self.audited:
            try:
                activity, more = await self._activity(at.activity)
            except Permanent as error:
                if not is_forbidden(error):
                    raise
                if not self._forbidden_until:
                    self._notify(Told(NO_AUDIT, {"company": self._company}))
                self._forbidden_until = self._copies.now() + ASK_AGAIN
        sweep = (thorough or not self.audited) and not more
        issues, settled = await self._sweep(at.issues) if sweep else (at.issues, True)
        return Looked(CommentPosition(activity=activity, issues=issues), more, settled)

    async def _activity(self, reached: float) -> tuple[float, bool]:
        since = max(self._start, reached - OVERLAP)
        count, rows = 0, deque[Json](maxlen=CATCH_UP)  # newest first: when it is full, the newest fall out
        async for row in self._client.audit_feed(self._company, iso(since)):
            count += 1
            rows.append(row)
        rows.reverse()
        envelopes = [each for row in rows if (each := of_activity(row)) and not self._outbox.knows(each["eventId"])]
        await self._outbox.send(await self._copies.announce(envelopes))
        for issue in dict.fromkeys(row["entityId"] for row in rows if row["details"] is None):
            await self._hidden(issue, since)
        return max([reached, *(instant(row["createdAt"]) for row in rows)]), count > len(rows)

    async def _hidden(self, issue_id: str, since: float) -> None:
        """Activity does not say which comments of a hidden issue it is about, nor is such an issue listed."""
        try:
            issue = await self._client.issue_json(issue_id)
            if issue is not None:
                await self._comments(issue, since)
        except Permanent as error:
            self._pass_over(issue_id, error)

    async def _sweep(self, since: float) -> tuple[float, bool]:
        """Read the comments of issues that changed since; up to where, and whether all of them were settled."""
        issues = [each async for each in self._client.issues(self._company, iso(since - OVERLAP))]
        unsettled = []
        for issue in reversed(issues):
            try:
                if not await self._comments(issue, since):
                    unsettled.append(instant(issue["updatedAt"]))
            except Permanent as error:
                self._pass_over(issue["id"], error)
        reached = max([since, *(instant(each["updatedAt"]) for each in issues)])
        # Issues that rest for a day are read anew when they change.
        for id_ in [id_ for id_, changed in self._read.items() if instant(changed) < reached - LOOK_BACK_ALONE]:
            del self._read[id_]
            self._living.pop(id_, None)
        return max(since, min([reached, *unsettled])), not unsettled

    def _pass_over(self, issue_id: str, error: HandlingError) -> None:
        self._notify(Told("an issue is passed over", {"issue": issue_id, "error": str(error)}))

    async def _comments(self, issue: Json, reached: float) -> bool:
        """Read an issue's comments back to where they are known, and publish what is not known to be.

        Returns:
            whether that was all: a comment of just now is left to the audit feed, which knows more about it.
        """
        if self._read.get(issue["id"]) == issue["updatedAt"]:
            return True
        floor = max(self._start, reached - (LOOK_BACK if self.audited else LOOK_BACK_ALONE))
        comments = [self._light(each) async for each in self._back_to(issue["id"], floor)]
        comments.reverse()
        then = self._copies.issue_then(issue)
        new = [each for each in comments if self._is_new(each)]
        settled = [each for each in new if not self._is_young(each)]
        found = [await self._copies.announce_read(each, then) for each in settled]
        if not self.audited:
            found += await self._vanished(issue, comments, floor)
        await self._outbox.send(found)
        if len(settled) < len(new):
            return False
        self._read[issue["id"]] = issue["updatedAt"]
        return True

    def _is_new(self, comment: Json) -> bool:
        happened = DELETED if comment["deletedAt"] is not None else CREATED
        return instant(comment["deletedAt"] or comment["createdAt"]) >= self._start and not self._outbox.knows(
            event_id(happened, comment["id"])
        )

    def _is_young(self, comment: Json) -> bool:
        return self.audited and 0 <= self._copies.now() - instant(comment["createdAt"]) < SETTLING

    async def _back_to(self, issue: str, floor: float) -> AsyncIterator[Json]:
        async for comment in self._client.comments(issue, oldest_first=False):
            if instant(comment["createdAt"]) < floor:
                return
            yield comment

    def _light(self, comment: Json) -> Json:
        """Without a body that is not published anyway: bodies can be megabytes, and a history is long."""
        if self._copies.fresh(comment["createdAt"]):
            return comment
        return comment | {"body": (comment["body"] or "")[:SNIPPET_UNITS]}

    async def _vanished(self, issue: Json, comments: Sequence[Json], floor: float) -> list[Announcement]:
        """Cancelled comments leave no row: known ones that should have been read again, and were not."""
        before = self._living.get(issue["id"], {})
        living = self._living[issue["id"]] = {each["id"]: instant(each["createdAt"]) for each in comments}
        missing = [id_ for id_, made in before.items() if made >= floor and id_ not in living]
        gone = [id_ for id_ in missing if await self._client.comment_json(issue["id"], id_) is None]
        return [Announcement(of_vanished(id_, issue, at=issue["updatedAt"])) for id_ in gone]
