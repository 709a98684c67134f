"""Issues as they were when a comment was made: a comment of a user belongs to who was assigned then.

An event that is published later, or again, must lead to the same bank, whoever is assigned by now.
"""

import asyncio
from collections.abc import Iterable

from consumer.paperclip.feed import FeedClient
from consumer.relay.envelopes import Json
from consumer.relay.times import instant

SAME = 0.5
"""Seconds: a comment changes its issue's `updatedAt` itself, that much later at most."""


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
    """One issue, asked for what it was; Paperclip is asked at most once.

    Args:
        issue: as it is now.
    """

    def __init__(self, client: FeedClient, issue: Json) -> None:
        self.now = issue
        self._client = client
        self._activity: asyncio.Task[list[Json]] | None = None

    async def at(self, time: str) -> Json:
        """The issue with the assignee of this time. Raises from `consumer.errors`."""
        if instant(self.now["updatedAt"]) <= instant(time) + SAME:
            return self.now
        if self._activity is None:
            self._activity = asyncio.ensure_future(self._client.activity(self.now["id"]))
        return self.now | {"assigneeAgentId": assignee_at(self.now, await self._activity, instant(time))}


class IssuesThen:
    """Issues of one batch of events, each asked for once."""

    def __init__(self, client: FeedClient) -> None:
        self._client = client
        self._asked: dict[str, asyncio.Task[Json | None]] = {}
        self._known: dict[str, IssueThen] = {}

    async def at(self, issue_id: str, time: str) -> Json | None:
        """An issue as it was; None if Paperclip shows none of this id. Raises from `consumer.errors`."""
        if issue_id not in self._asked:
            self._asked[issue_id] = asyncio.ensure_future(self._client.issue(issue_id))
        issue = await self._asked[issue_id]
        if issue is None:
            return None
        return await self._known.setdefault(issue_id, IssueThen(self._client, issue)).at(time)
