"""What following Paperclip reads: its audit feed, issues, comments and runs, as it answers them.

Objects stay the JSON that Paperclip sent: events carry them whole. FIELD-FACTS of each endpoint stand at its method.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.http.errors import missing
from consumer.http.rest_client import Rest
from consumer.http.transport import Send
from consumer.paperclip.client import path_uuid

Json = dict[str, Any]
T = TypeVar("T")

AUDIT_PAGE = 200  # the most that Paperclip gives at once
ISSUES_PAGE = 200
COMMENTS_PAGE = 50


class FeedOperation(StrEnum):
    """What is asked of Paperclip (closed: a metric label)."""

    AUDIT = "audit"
    ISSUES = "issues"
    ISSUE = "issue"
    ACTIVITY = "activity"
    COMMENTS = "comments"
    COMMENT = "comment"
    RUNS = "runs"
    RUN = "run"
    RUN_EVENTS = "run_events"
    AGENTS = "agents"
    PLUGINS = "plugins"
    CLOCK = "clock"


class FeedClient:
    """Paperclip's lists. Every method raises from `consumer.errors`.

    Args:
        base: normalised by `consumer.http.transport.base_url`.
        timeout: seconds for a whole exchange.
    """

    def __init__(self, send: Send, base: str, *, key: str | None, user_agent: str, timeout: float = 15.0) -> None:
        self._rest = Rest(send, base, Upstream.PAPERCLIP, key=key, user_agent=user_agent, timeout=timeout)

    async def clock(self) -> str | None:
        """The `Date` that Paperclip's host shows, as HTTP writes it; None if a proxy took it out."""
        reply = await self._rest.call(FeedOperation.CLOCK, "GET", "/api/health")
        return reply.headers.get("date")

    async def audit(self, company: str, since: str) -> AsyncIterator[Json]:
        """What was done to comments at or after `since`, newest first.

        `createdAt` is the start of a transaction: one that takes long appears behind newer ones. `details` is null for
        issues that are hidden.

        Raises:
            Permanent: with reason `forbidden`, if the key lacks the permission `audit:view_agent_actions`.
        """
        query = {
            "actorScope": "all",
            "entityType": "issue",
            "action": "issue.comment",
            "from": since,
            "limit": AUDIT_PAGE,
        }
        cursor: str | None = None
        while True:
            found = await self._page(
                FeedOperation.AUDIT,
                f"/api/companies/{path_uuid(company)}/audit/agent-actions",
                query | _given(cursor=cursor),
            )
            for row in found["items"]:
                yield row
            cursor = found["nextCursor"]
            if cursor is None:
                return

    async def may_audit(self, company: str) -> bool:
        """Whether the key may read a company's audit feed. Raises from `consumer.errors`."""
        query = _query({"actorScope": "all", "action": "issue.comment", "limit": 1})
        path = f"/api/companies/{path_uuid(company)}/audit/agent-actions{query}"
        reply = await self._rest.call(FeedOperation.AUDIT, "GET", path, accept=(403,))
        return reply.status != 403

    async def issues(self, company: str, since: str | None = None) -> AsyncIterator[Json]:
        """Issues whose `updatedAt` is later than `since`, else all; the last active first, each once.

        One that changes meanwhile moves to the front, and may be left out: its `updatedAt` is then later than those of
        all that came. Descriptions are cut at 1,200 characters; hidden issues are left out.
        """
        query = {"includePluginOperations": "true", "sortField": "updated", "sortDir": "desc", "limit": ISSUES_PAGE}
        offset, seen = 0, set[str]()
        while True:
            page = await self._list(
                FeedOperation.ISSUES,
                f"/api/companies/{path_uuid(company)}/issues",
                query | _given(updatedSince=since, offset=offset),
            )
            for row in page:
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield row
            if len(page) < ISSUES_PAGE:
                return
            offset += len(page)

    async def comments(self, issue: str, *, oldest_first: bool) -> AsyncIterator[Json]:
        """An issue's comments, tombstones of deleted ones too; each once.

        Paperclip pages after a comment, and says that nothing follows one that was cancelled meanwhile (its row is
        gone): an empty page counts only while its anchor lives, else the page goes on after the comment before.
        """
        query = {"order": "asc" if oldest_first else "desc", "limit": COMMENTS_PAGE}
        path = f"/api/issues/{path_uuid(issue)}/comments"
        seen: dict[str, None] = {}
        while True:
            anchor = next(reversed(seen), None)
            page = await self._list(FeedOperation.COMMENTS, path, query | _given(after=anchor))
            if not page and anchor is not None and await self.comment(issue, anchor) is None:
                del seen[anchor]
                continue
            for row in page:
                if row["id"] not in seen:
                    seen[row["id"]] = None
                    yield row
            if len(page) < COMMENTS_PAGE:
                return

    async def runs(self, company: str, limit: int, agent: str | None = None) -> list[Json]:
        """The runs created last, newest first, at most 1,000; of all agents or of one. Old runs change in place."""
        return await self._list(
            FeedOperation.RUNS,
            f"/api/companies/{path_uuid(company)}/heartbeat-runs",
            {"summary": "true", "limit": limit} | _given(agentId=agent),
        )

    async def run_statuses(self, run: str) -> list[str]:
        """The statuses that a run's log says it has ended with, in no order: a cancelled run may have ended before."""
        page = await self._list(
            FeedOperation.RUN_EVENTS, f"/api/heartbeat-runs/{path_uuid(run)}/events", {"limit": 1000}
        )
        ends = [row["payload"] for row in page if row["eventType"] == "lifecycle" and row["payload"] is not None]
        return [payload["status"] for payload in ends if "status" in payload]

    async def run(self, run: str) -> Json | None:
        """A run with what woke it; None if this key is shown none of this id."""
        return await self._object(FeedOperation.RUN, f"/api/heartbeat-runs/{path_uuid(run)}")

    async def issue(self, issue: str) -> Json | None:
        """A whole issue; None if this key is shown none of this id."""
        return await self._object(FeedOperation.ISSUE, f"/api/issues/{path_uuid(issue)}")

    async def activity(self, issue: str) -> list[Json]:
        """What was done to an issue, newest first; `details.changes` says from what to what."""
        return await self._list(FeedOperation.ACTIVITY, f"/api/issues/{path_uuid(issue)}/activity", {})

    async def comment(self, issue: str, comment: str) -> Json | None:
        """A comment, a tombstone too; None if its row is gone.

        Raises:
            Permanent: this key is shown no such issue, which does not say that the comment is gone.
        """
        path = f"/api/issues/{path_uuid(issue)}/comments/{path_uuid(comment)}"
        reply = await self._rest.call(FeedOperation.COMMENT, "GET", path, accept=(404,))
        if reply.status != 404:
            return self._rest.read(reply, FeedOperation.COMMENT, _object)
        if (missing(reply, Upstream.PAPERCLIP) or "").casefold() == "comment not found":
            return None
        raise self._rest.error(reply, FeedOperation.COMMENT)

    async def agents(self, company: str) -> list[str]:
        """Ids of a company's agents."""
        page = await self._list(FeedOperation.AGENTS, f"/api/companies/{path_uuid(company)}/agents", {})
        return [row["id"] for row in page]

    async def plugins(self) -> list[Json]:
        """The plugins that are installed.

        Raises:
            Permanent: with reason `forbidden`, if the key is no board member's.
        """
        return await self._list(FeedOperation.PLUGINS, "/api/plugins", {})

    async def plugin_config(self, plugin: str, company: str) -> Json | None:
        """What a plugin is configured with in a company; None if it is not."""
        path = f"/api/plugins/{path_uuid(plugin)}/config"
        reply = await self._rest.call(FeedOperation.PLUGINS, "GET", path + _query({"companyId": path_uuid(company)}))
        found: Json | None = self._rest.read(reply, FeedOperation.PLUGINS, _or_none)
        return found

    async def _object(self, operation: FeedOperation, path: str) -> Json | None:
        reply = await self._rest.call(operation, "GET", path, accept=(404,))
        if reply.status != 404:
            return self._rest.read(reply, operation, _object)
        if missing(reply, Upstream.PAPERCLIP) is None:
            raise self._rest.error(reply, operation)
        return None

    async def _list(self, operation: FeedOperation, path: str, query: Mapping[str, object]) -> list[Json]:
        return await self._get(operation, path, query, _rows)

    async def _page(self, operation: FeedOperation, path: str, query: Mapping[str, object]) -> Json:
        return await self._get(operation, path, query, _audit_page)

    async def _get(
        self, operation: FeedOperation, path: str, query: Mapping[str, object], parse: Callable[[Any], T]
    ) -> T:
        reply = await self._rest.call(operation, "GET", path + _query(query))
        return self._rest.read(reply, operation, parse)


def forbidden(error: BaseException) -> bool:
    """Whether an error is Paperclip's 403."""
    return isinstance(error, Permanent) and error.reason is DeadLetterReason.FORBIDDEN


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _query(values: Mapping[str, object]) -> str:
    return "?" + urlencode(values) if values else ""


def _object(value: Any) -> Json:
    if not isinstance(value["id"], str):
        raise TypeError("no id")
    return dict(value)


def _or_none(value: Any) -> Json | None:
    return dict(value) if value is not None else None


def _rows(value: Any) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return [dict(row) for row in value]


def _audit_page(value: Any) -> Json:
    return {"items": _rows(value["items"]), "nextCursor": value["nextCursor"]}
