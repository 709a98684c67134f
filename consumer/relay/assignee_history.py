"""Issues as they were when a comment was made: a user's comment belongs to the agent who had the issue then.

An event that is published late, or again, must lead to the same bank, whoever has the issue by now.
"""

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from cachetools import LRUCache

from consumer.paperclip.models import Json
from consumer.relay.concurrency import Pace
from consumer.relay.protocols import PaperclipFeed
from schemas.timestamps import parse_timestamp

ACTIVITY_DELAY = 1.0
"""Seconds after which the activity of a changed assignee is certainly there."""
RETRY_INTERVAL = 0.1
RETRIES = 10
REMEMBERED_ISSUES = 10_000


class AssigneeChange(NamedTuple):
    """An issue went from one agent, or none, to another, or none. `at`: seconds since the epoch."""

    at: float
    before: str | None
    after: str | None


def assignee_changes(activity: Iterable[Json]) -> list[AssigneeChange]:
    """All changes of the assignee in an issue's activity, oldest first.

    An update names the agent before and after. A checkout and a release name only the agent after: the one before is
    the one of the preceding change, or, without one, the agent who acted, who has had the issue since its creation.
    """
    changes: list[AssigneeChange] = []
    for at, row in sorted(((parse_timestamp(row["createdAt"]), row) for row in activity), key=itemgetter(0)):
        details, previous = row.get("details") or {}, changes[-1].after if changes else None
        update = (details.get("changes") or {}).get("assigneeAgentId")
        if isinstance(update, dict):
            changes.append(AssigneeChange(at, update.get("from"), update.get("to")))
        elif row.get("action") == "issue.checked_out":
            agent = details.get("agentId")
            changes.append(AssigneeChange(at, previous if changes else agent, agent))
        elif row.get("action") == "issue.released":
            changes.append(AssigneeChange(at, previous if changes else row.get("agentId"), None))
    return changes


def assignee_at(issue: Json, changes: Iterable[AssigneeChange], time: float) -> str | None:
    """The agent who had the issue at `time`, seconds since the epoch."""
    return next((change.before for change in changes if change.at > time), issue["assigneeAgentId"])


class AssigneeCache:
    """The assignees that issues had when they were read last: an unchanged one need not be waited for."""

    def __init__(self) -> None:
        self._assignees: LRUCache[str, tuple[float, str | None]] = LRUCache(REMEMBERED_ISSUES)

    def remember(self, issue: Json) -> None:
        """Keep the assignee of an issue; of the 10,000 issues read last."""
        self._assignees[issue["id"]] = (parse_timestamp(issue["updatedAt"]), issue["assigneeAgentId"])

    def is_unchanged(self, issue: Json, since: float) -> bool:
        """Whether an issue had its present assignee already at `since`, seconds since the epoch, as far as is known.

        It can have had another one in between.
        """
        remembered = self._assignees.get(issue["id"])
        return remembered is not None and remembered[0] <= since and remembered[1] == issue["assigneeAgentId"]


class Activity(NamedTuple):
    """An issue's activity.

    Attributes:
        read_at, newest: when it was asked for, and the time of its last row, seconds since the epoch.
    """

    read_at: float
    changes: list[AssigneeChange]
    newest: float


class IssueHistory:
    """One issue with its former assignees. Its activity is read at most once, unless it lags behind the issue.

    Args:
        current: the issue as it is now.
        now: seconds since the epoch.
        activity: what was read together with the issue; None: nothing yet.
    """

    def __init__(
        self,
        paperclip: PaperclipFeed,
        current: Json,
        assignees: AssigneeCache,
        now: Callable[[], float],
        activity: Activity | None = None,
    ) -> None:
        self.current = current
        self._paperclip = paperclip
        self._assignees = assignees
        self._now = now
        self._activity = activity
        self._changes: asyncio.Future[list[AssigneeChange]] | None = None

    async def at(self, time: str) -> Json:
        """The issue with the assignee that it had at `time`, ISO 8601. Raises from `consumer.errors`."""
        then = parse_timestamp(time)
        if parse_timestamp(self.current["updatedAt"]) <= then:
            return self.current
        if self._changes is None:
            unchanged = self._assignees.is_unchanged(self.current, then)
            self._changes = asyncio.ensure_future(self._read_changes(unchanged))
        issue = self.current | {"assigneeAgentId": assignee_at(self.current, await self._changes, then)}
        self._assignees.remember(self.current)
        return issue

    async def _read_changes(self, unchanged: bool) -> list[AssigneeChange]:
        """The changes, once the activity explains the present assignee.

        Paperclip changes an issue first and writes its activity afterwards; and the activity can have been read before
        the issue.
        """
        updated = parse_timestamp(self.current["updatedAt"])
        activity = self._activity or await read_activity(self._paperclip, self.current["id"], self._now)
        for _ in range(RETRIES):
            if self._is_explained(activity, updated, unchanged) or activity.read_at - updated >= ACTIVITY_DELAY:
                break
            await asyncio.sleep(RETRY_INTERVAL)
            activity = await read_activity(self._paperclip, self.current["id"], self._now)
        return activity.changes

    def _is_explained(self, activity: Activity, updated: float, unchanged: bool) -> bool:
        """Whether this activity leads to the assignee that the issue has."""
        if activity.changes:
            assignee: str | None = self.current["assigneeAgentId"]
            return activity.changes[-1].after == assignee
        return unchanged or activity.newest >= updated


async def read_activity(paperclip: PaperclipFeed, issue_id: str, now: Callable[[], float]) -> Activity:
    """An issue's activity as it is now. Raises from `consumer.errors`."""
    read_at = now()
    rows = await paperclip.activity(issue_id)
    newest = max((parse_timestamp(row["createdAt"]) for row in rows), default=0.0)
    return Activity(read_at, assignee_changes(rows), newest)


class IssueHistories:
    """The issues of one batch of events, each read once."""

    def __init__(self, paperclip: PaperclipFeed, assignees: AssigneeCache, now: Callable[[], float]) -> None:
        self._paperclip = paperclip
        self._assignees = assignees
        self._now = now
        self._histories: dict[str, asyncio.Future[IssueHistory | None]] = {}

    async def issue_at(self, issue_id: str, time: str, *, pace: Pace | None) -> Json | None:
        """An issue as it was at `time`; None if Paperclip does not show it. Raises from `consumer.errors`.

        Args:
            pace: wait for it before the issue is read; None: read it at once.
        """
        if issue_id not in self._histories:
            self._histories[issue_id] = asyncio.ensure_future(self._load(issue_id, pace))
        history = await self._histories[issue_id]
        return None if history is None else await history.at(time)

    async def _load(self, issue_id: str, pace: Pace | None) -> IssueHistory | None:
        """The issue with its activity, which is needed in most cases: a comment moves its issue's `updatedAt`."""
        if pace is not None:
            await pace.wait(2)
        issue, activity = await asyncio.gather(
            self._paperclip.issue_json(issue_id), read_activity(self._paperclip, issue_id, self._now)
        )
        return None if issue is None else IssueHistory(self._paperclip, issue, self._assignees, self._now, activity)
