"""Issues as they were when a comment was made: a comment of a user belongs to who was assigned then.

An event that is published later, or again, must lead to the same bank, whoever is assigned by now.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

from consumer.paperclip.feed import FeedClient
from consumer.relay.envelopes import Json
from consumer.relay.times import instant

TOLD_WITHIN = 0.5
"""Seconds after which a change of an issue's assignee has its activity."""
ASKED_EVERY = 0.05
REMEMBERED = 10_000


def assignee_at(issue: Json, activity: Iterable[Json], time: float) -> str | None:
    """The agent that the issue was assigned to.

    Args:
        activity: the issue's; rows of `issue.updated` say what changed, from what and to what.
        time: seconds since the epoch.
    """
    later = [(instant(row["createdAt"]), change) for row in activity if (change := _change(row)) is not None]
    after = [(at, change) for at, change in later if at > time]
    return min(after, key=lambda each: each[0])[1].get("from") if after else issue["assigneeAgentId"]


def _change(row: Json) -> Json | None:
    found = ((row.get("details") or {}).get("changes") or {}).get("assigneeAgentId")
    return found if isinstance(found, dict) else None


class Assignees:
    """Who issues were assigned to when they were read last: what has not changed since need not be asked for."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, str | None]] = OrderedDict()

    def note(self, issue: Json) -> None:
        """Remember an issue that was read; of the 10,000 read last."""
        self._known[issue["id"]] = (instant(issue["updatedAt"]), issue["assigneeAgentId"])
        self._known.move_to_end(issue["id"])
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def has(self, issue_id: str) -> bool:
        """Whether an issue is remembered."""
        return issue_id in self._known

    def same_since(self, issue: Json, time: float) -> bool:
        """Whether an issue had its assignee already at this time, seconds since the epoch, as far as is remembered."""
        known = self._known.get(issue["id"])
        return known is not None and known[0] <= time and known[1] == issue["assigneeAgentId"]


class IssueThen:
    """One issue, asked for what it was; its activity is read at most once.

    Args:
        issue: as it is now.
        now: seconds since the epoch.
        activity: what was read of it at the same time; None: nothing yet.
    """

    def __init__(
        self,
        client: FeedClient,
        issue: Json,
        assignees: Assignees,
        now: Callable[[], float],
        activity: list[Json] | None = None,
    ) -> None:
        self.now = issue
        self._client = client
        self._assignees = assignees
        self._clock = now
        self._first = activity
        self._activity: asyncio.Future[list[Json]] | None = None

    async def at(self, time: str) -> Json:
        """The issue with the assignee of this time. Raises from `consumer.errors`."""
        then = instant(time)
        if instant(self.now["updatedAt"]) <= then or self._assignees.same_since(self.now, then):
            return self.now
        if self._activity is None:
            self._activity = asyncio.ensure_future(self._read())
        found = self.now | {"assigneeAgentId": assignee_at(self.now, await self._activity, then)}
        self._assignees.note(self.now)
        return found

    async def _read(self) -> list[Json]:
        """Its activity; of a change of just now only when that is told: Paperclip changes first, and tells then."""
        changed, activity = instant(self.now["updatedAt"]), self._first
        while True:
            if activity is None:
                activity = await self._client.activity(self.now["id"])
            if self._explained(activity) or not 0 <= self._clock() - changed < TOLD_WITHIN:
                return activity
            activity = None
            await asyncio.sleep(ASKED_EVERY)

    def _explained(self, activity: list[Json]) -> bool:
        """Whether the activity is as new as the issue, or ends with the assignee that the issue has."""
        changed = instant(self.now["updatedAt"])
        if any(instant(row["createdAt"]) >= changed for row in activity):
            return True
        last = max((row for row in activity if _change(row)), key=lambda row: str(row["createdAt"]), default=None)
        change = _change(last) if last is not None else None
        return change is not None and change.get("to") == self.now["assigneeAgentId"]


class IssuesThen:
    """Issues of one batch of events, each asked for once."""

    def __init__(self, client: FeedClient, assignees: Assignees, now: Callable[[], float]) -> None:
        self._client = client
        self._assignees = assignees
        self._now = now
        self._asked: dict[str, asyncio.Future[IssueThen | None]] = {}

    async def at(self, issue_id: str, time: str) -> Json | None:
        """An issue as it was; None if Paperclip shows none of this id. Raises from `consumer.errors`."""
        if issue_id not in self._asked:
            self._asked[issue_id] = asyncio.ensure_future(self._ask(issue_id))
        issue = await self._asked[issue_id]
        return None if issue is None else await issue.at(time)

    async def _ask(self, issue_id: str) -> IssueThen | None:
        """With its activity, if that will be needed: a comment moves the `updatedAt` of its issue."""
        if self._assignees.has(issue_id):
            issue, activity = await self._client.issue(issue_id), None
        else:
            issue, activity = await asyncio.gather(self._client.issue(issue_id), self._client.activity(issue_id))
        return None if issue is None else IssueThen(self._client, issue, self._assignees, self._now, activity)
