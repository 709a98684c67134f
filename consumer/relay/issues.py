"""Issues as they were when a comment was made: a comment of a user belongs to who was assigned then.

An event that is published later, or again, must lead to the same bank, whoever is assigned by now.
"""

import asyncio
from collections.abc import Callable, Iterable

from consumer.paperclip.feed import FeedClient
from consumer.relay.envelopes import Json
from consumer.relay.times import instant

TOLD_WITHIN = 2.0
"""Seconds after which a change of an issue has its activity, or has none."""


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


class IssueThen:
    """One issue, asked for what it was; its activity is read at most once.

    Args:
        issue: as it is now.
        now: seconds since the epoch.
    """

    def __init__(self, client: FeedClient, issue: Json, now: Callable[[], float]) -> None:
        self.now = issue
        self._client = client
        self._clock = now
        self._activity: asyncio.Future[list[Json]] | None = None

    async def at(self, time: str) -> Json:
        """The issue with the assignee of this time. Raises from `consumer.errors`."""
        if instant(self.now["updatedAt"]) <= instant(time):
            return self.now
        if self._activity is None:
            self._activity = asyncio.ensure_future(self._read())
        return self.now | {"assigneeAgentId": assignee_at(self.now, await self._activity, instant(time))}

    async def _read(self) -> list[Json]:
        """Its activity; of a change of just now only when that is told: Paperclip writes it a little later."""
        changed = instant(self.now["updatedAt"])
        while True:
            activity = await self._client.activity(self.now["id"])
            told = any(instant(row["createdAt"]) >= changed for row in activity)
            if told or not 0 <= self._clock() - changed < TOLD_WITHIN:
                return activity
            await asyncio.sleep(0.1)


class IssuesThen:
    """Issues of one batch of events, each asked for once."""

    def __init__(self, client: FeedClient, now: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._asked: dict[str, asyncio.Future[IssueThen | None]] = {}

    async def at(self, issue_id: str, time: str) -> Json | None:
        """An issue as it was; None if Paperclip shows none of this id. Raises from `consumer.errors`."""
        if issue_id not in self._asked:
            self._asked[issue_id] = asyncio.ensure_future(self._ask(issue_id))
        issue = await self._asked[issue_id]
        return None if issue is None else await issue.at(time)

    async def _ask(self, issue_id: str) -> IssueThen | None:
        issue = await self._client.issue(issue_id)
        return None if issue is None else IssueThen(self._client, issue, self._now)
