"""Issues as they were when a comment was made: a comment of a user belongs to who was assigned then.

An event that is published later, or again, must lead to the same bank, whoever is assigned by now.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from consumer.paperclip.client import PaperclipClient
from consumer.relay.event_builder import Json
from consumer.relay.times import instant

TOLD_WITHIN = 1.0
"""Seconds after which a change of an issue's assignee has its activity."""
ASKED_EVERY = 0.1
TRIES = 10
REMEMBERED = 10_000


class Change(NamedTuple):
    """An issue went from one agent, or none, to another, or none. `at`: seconds since the epoch."""

    at: float
    before: str | None
    after: str | None


def changes_of(activity: Iterable[Json]) -> list[Change]:
    """All changes of the assignee that an issue's activity tells of, oldest first.

    An update says from what to what. A checkout and a release say only to what: before them it was what the change
    before says, or, without one, the agent who did it, who had the issue by its creation.
    """
    found: list[Change] = []
    for at, row in sorted(((instant(row["createdAt"]), row) for row in activity), key=itemgetter(0)):
        details, last = row.get("details") or {}, found[-1].after if found else None
        change = (details.get("changes") or {}).get("assigneeAgentId")
        if isinstance(change, dict):
            found.append(Change(at, change.get("from"), change.get("to")))
        elif row.get("action") == "issue.checked_out":
            agent = details.get("agentId")
            found.append(Change(at, last if found else agent, agent))
        elif row.get("action") == "issue.released":
            found.append(Change(at, last if found else row.get("agentId"), None))
    return found


def assignee_at(issue: Json, changes: Iterable[Change], time: float) -> str | None:
    """The agent that the issue was assigned to. `time`: seconds since the epoch."""
    return next((change.before for change in changes if change.at > time), issue["assigneeAgentId"])


class Assignees:
    """Who issues were assigned to when they were read last: what is as it was need not be waited for."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, str | None]] = OrderedDict()

    def note(self, issue: Json) -> None:
        """Remember an issue that was read; of the 10,000 read last."""
        self._known[issue["id"]] = (instant(issue["updatedAt"]), issue["assigneeAgentId"])
        self._known.move_to_end(issue["id"])
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def same_since(self, issue: Json, time: float) -> bool:
        """Whether an issue had its assignee already at this time, seconds since the epoch, as far as is remembered.

        It can have had another in between.
        """
        known = self._known.get(issue["id"])
        return known is not None and known[0] <= time and known[1] == issue["assigneeAgentId"]


class Activity(NamedTuple):
    """What an issue's activity told.

    Attributes:
        asked, newest: when it was asked for, and the time of its last row, seconds since the epoch.
    """

    asked: float
    changes: list[Change]
    newest: float


class IssueThen:
    """One issue, asked for what it was; its activity is read as seldom as can be.

    Args:
        issue: as it is now.
        now: seconds since the epoch.
        activity: what was read of it at the same time; None: nothing yet.
    """

    def __init__(
        self,
        client: PaperclipClient,
        issue: Json,
        assignees: Assignees,
        now: Callable[[], float],
        activity: Activity | None = None,
    ) -> None:
        self.now = issue
        self._client = client
        self._assignees = assignees
        self._clock = now
        self._first = activity
        self._changes: asyncio.Future[list[Change]] | None = None

    async def at(self, time: str) -> Json:
        """The issue with the assignee of this time. Raises from `consumer.errors`."""
        then = instant(time)
        if instant(self.now["updatedAt"]) <= then:
            return self.now
        if self._changes is None:
            self._changes = asyncio.ensure_future(self._read(self._assignees.same_since(self.now, then)))
        found = self.now | {"assigneeAgentId": assignee_at(self.now, await self._changes, then)}
        self._assignees.note(self.now)
        return found

    async def _read(self, remembered: bool) -> list[Change]:
        """What its activity tells; of a change of just now only when that is told.

        Paperclip changes an issue first and tells then; and the activity can have been read before the issue.
        """
        changed = instant(self.now["updatedAt"])
        activity = self._first or await activity_of(self._client, self.now["id"], self._clock)
        for _ in range(TRIES):
            if self._explained(activity, changed, remembered) or activity.asked - changed >= TOLD_WITHIN:
                break
            await asyncio.sleep(ASKED_EVERY)
            activity = await activity_of(self._client, self.now["id"], self._clock)
        return activity.changes

    def _explained(self, activity: Activity, changed: float, remembered: bool) -> bool:
        """Whether this activity leads to the assignee that the issue has."""
        if activity.changes:
            agent: str | None = self.now["assigneeAgentId"]
            return activity.changes[-1].after == agent
        return remembered or activity.newest >= changed


async def activity_of(client: PaperclipClient, issue_id: str, clock: Callable[[], float]) -> Activity:
    """An issue's activity, asked for now. Raises from `consumer.errors`."""
    asked = clock()
    rows = await client.activity(issue_id)
    return Activity(asked, changes_of(rows), max((instant(row["createdAt"]) for row in rows), default=0.0))


class IssuesThen:
    """Issues of one batch of events, each asked for once."""

    def __init__(self, client: PaperclipClient, assignees: Assignees, now: Callable[[], float]) -> None:
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
        """With its activity, which will be needed: a comment moves the `updatedAt` of its issue."""
        issue, activity = await asyncio.gather(
            self._client.issue_json(issue_id), activity_of(self._client, issue_id, self._now)
        )
        return None if issue is None else IssueThen(self._client, issue, self._assignees, self._now, activity)
