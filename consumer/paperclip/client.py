"""Client of Paperclip's REST API."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.http.errors import missing
from consumer.paperclip.instance_client import InstanceClient
from consumer.paperclip.models import (
    Json,
    PaperclipOperation,
    parse_audit_page,
    parse_ids,
    parse_model,
    parse_object,
    parse_optional,
    path_uuid,
    query_string,
)
from schemas.paperclip import Comment, Issue, Run

T = TypeVar("T")

AUDIT_PAGE = 200  # the most that Paperclip gives at once
ISSUES_PAGE = 200
COMMENTS_PAGE = 50
COMMENT_NOT_FOUND = "comment not found"


class PaperclipClient(InstanceClient):
    """Paperclip as the owner of one key sees it. Implements `consumer.handlers.context.Paperclip`.

    `run`, `issue` and `comment` return typed objects; `*_json` and the lists return the JSON that Paperclip sent, since
    the relay embeds it in events.

    Every method raises from `consumer.errors`. An id that is not a UUID is `Permanent` before anything is sent.

    One rule holds for every 404 of an object. Only `Comment not found`, which Paperclip says after it has checked the
    key and the issue, means that a comment is gone. `Issue not found` and `Heartbeat run not found` are also its
    answers to a wrong or expired key and for another company's objects, so they count only after the key has proved
    good; and then they say that this key is not shown the object, never that a comment is gone. A 404 in other words
    (a proxy's page, an unknown route) says nothing and is `Transient`.
    """

    # Objects

    async def run(self, run_id: str) -> Run | None:
        """A run; None if this key is not shown a run of this id."""
        return await self._run(run_id, partial(parse_model, Run))

    async def run_json(self, run_id: str) -> Json | None:
        """As `run`, with all that Paperclip sent."""
        return await self._run(run_id, parse_object)

    async def issue(self, issue_id: str) -> Issue | None:
        """An issue; None if this key is not shown an issue of this id."""
        return await self._issue(issue_id, partial(parse_model, Issue))

    async def issue_by_identifier(self, identifier: str) -> Issue | None:
        """An issue by its identifier, such as `PAP-12`; None if this key is not shown one, or for any other text.

        Paperclip takes an identifier that it does not know for an id, and then answers 500.
        """
        if not re.fullmatch(r"\s*[A-Za-z][A-Za-z0-9]*-[0-9]+\s*", identifier, re.ASCII):
            return None
        path = f"/api/issues/{identifier.strip().upper()}"
        return await self._object(PaperclipOperation.ISSUE, path, Issue.model_validate, accept=(404, 500))

    async def issue_json(self, issue_id: str) -> Json | None:
        """As `issue`, with all that Paperclip sent."""
        return await self._issue(issue_id, parse_object)

    async def comment(self, issue_id: str, comment_id: str) -> Comment | None:
        """A comment, also the tombstone of a deleted one; None if it is gone from an issue that this key may read.

        Raises:
            Permanent: with reason `forbidden`: Paperclip does not show the issue to this key. It does not say whether
                the issue is deleted or another company's, so nothing is forgotten because of it.
        """
        return await self._comment(issue_id, comment_id, partial(parse_model, Comment))

    async def comment_json(self, issue_id: str, comment_id: str) -> Json | None:
        """As `comment`, with all that Paperclip sent."""
        return await self._comment(issue_id, comment_id, parse_object)

    # Lists

    async def agents(self, company_id: str) -> Sequence[str]:
        """Ids of all agents of a company."""
        return await self._get(PaperclipOperation.AGENTS, f"/api/companies/{path_uuid(company_id)}/agents", parse_ids)

    async def audit_feed(self, company_id: str, since: str) -> AsyncIterator[Json]:
        """What was done to comments at or after `since` (ISO 8601), newest first.

        `createdAt` is the start of a transaction, so rows of a long one appear behind newer rows. `details` is null for
        hidden issues.

        Raises:
            Permanent: with reason `forbidden`, if the key lacks the permission `audit:view_agent_actions`.
        """
        path = f"/api/companies/{path_uuid(company_id)}/audit/agent-actions"
        query = {
            "actorScope": "all",
            "entityType": "issue",
            "action": "issue.comment",
            "from": since,
            "limit": AUDIT_PAGE,
        }
        cursor: str | None = None
        while True:
            page = query_string(query | {"cursor": cursor})
            rows, cursor = await self._get(PaperclipOperation.AUDIT, path + page, parse_audit_page)
            for row in rows:
                yield row
            if cursor is None:
                return

    async def can_read_audit_feed(self, company_id: str) -> bool:
        """Whether the key may read a company's audit feed."""
        query = query_string({"actorScope": "all", "action": "issue.comment", "limit": 1})
        path = f"/api/companies/{path_uuid(company_id)}/audit/agent-actions{query}"
        reply = await self._rest.call(PaperclipOperation.AUDIT, "GET", path, accept=(403,))
        return reply.status != 403

    async def issues(self, company_id: str, since: str | None = None) -> AsyncIterator[Json]:
        """Issues whose `updatedAt` is later than `since`, else all; the last updated first, each once.

        An issue that changes while the pages are read moves to the front and may be left out: its `updatedAt` is then
        later than those of all that came. Descriptions are cut at 1,200 characters; hidden issues are left out.
        """
        path = f"/api/companies/{path_uuid(company_id)}/issues"
        query = {"includePluginOperations": "true", "sortField": "updated", "sortDir": "desc", "limit": ISSUES_PAGE}
        offset, seen = 0, set[str]()
        while True:
            page = query | {"updatedSince": since, "offset": offset}
            rows = await self._list(PaperclipOperation.ISSUES, path, page)
            for row in rows:
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield row
            if len(rows) < ISSUES_PAGE:
                return
            offset += len(rows)

    async def comments(self, issue_id: str, *, oldest_first: bool) -> AsyncIterator[Json]:
        """An issue's comments, also the tombstones of deleted ones; each once.

        Paperclip pages after an anchor comment, and answers with an empty page if the anchor was cancelled meanwhile
        (its row is gone). So an empty page counts only while its anchor exists; else paging goes on after the comment
        before it.
        """
        path = f"/api/issues/{path_uuid(issue_id)}/comments"
        query = {"order": "asc" if oldest_first else "desc", "limit": COMMENTS_PAGE}
        seen: dict[str, None] = {}
        while True:
            anchor = next(reversed(seen), None)
            rows = await self._list(PaperclipOperation.COMMENTS, path, query | {"after": anchor})
            if not rows and anchor is not None and await self.comment_json(issue_id, anchor) is None:
                del seen[anchor]
                continue
            for row in rows:
                if row["id"] not in seen:
                    seen[row["id"]] = None
                    yield row
            if len(rows) < COMMENTS_PAGE:
                return

    async def activity(self, issue_id: str) -> list[Json]:
        """What was done to an issue, newest first; `details.changes` holds old and new values."""
        return await self._list(PaperclipOperation.ACTIVITY, f"/api/issues/{path_uuid(issue_id)}/activity")

    async def runs(self, company_id: str, limit: int, agent_id: str | None = None) -> list[Json]:
        """The runs created last, newest first, at most 1,000; of all agents or of one. Old runs change in place."""
        path = f"/api/companies/{path_uuid(company_id)}/heartbeat-runs"
        query = {"summary": "true", "limit": limit, "agentId": agent_id}
        return await self._list(PaperclipOperation.RUNS, path, query)

    async def run_end_statuses(self, run_id: str) -> list[str]:
        """The statuses with which a run has ended by its log, in no order: a cancelled run may have ended before."""
        path = f"/api/heartbeat-runs/{path_uuid(run_id)}/events"
        rows = await self._list(PaperclipOperation.RUN_EVENTS, path, {"limit": 1000})
        payloads = [row["payload"] for row in rows if row["eventType"] == "lifecycle" and row["payload"] is not None]
        return [payload["status"] for payload in payloads if "status" in payload]

    async def plugins(self) -> list[Json]:
        """The installed plugins.

        Raises:
            Permanent: with reason `forbidden`, if the key is not a board member's.
        """
        return await self._list(PaperclipOperation.PLUGINS, "/api/plugins")

    async def plugin_config(self, plugin_id: str, company_id: str) -> Json | None:
        """A plugin's configuration in a company; None if it has none."""
        path = f"/api/plugins/{path_uuid(plugin_id)}/config" + query_string({"companyId": path_uuid(company_id)})
        return await self._get(PaperclipOperation.PLUGINS, path, parse_optional)

    async def _run(self, run_id: str, parse: Callable[[str, Any], T]) -> T | None:
        id_ = path_uuid(run_id)
        return await self._object(PaperclipOperation.RUN, f"/api/heartbeat-runs/{id_}", partial(parse, id_))

    async def _issue(self, issue_id: str, parse: Callable[[str, Any], T]) -> T | None:
        id_ = path_uuid(issue_id)
        return await self._object(PaperclipOperation.ISSUE, f"/api/issues/{id_}", partial(parse, id_))

    async def _comment(self, issue_id: str, comment_id: str, parse: Callable[[str, Any], T]) -> T | None:
        path, id_ = f"/api/issues/{path_uuid(issue_id)}/comments", path_uuid(comment_id)
        return await self._object(PaperclipOperation.COMMENT, f"{path}/{id_}", partial(parse, id_))

    async def _object(
        self, operation: PaperclipOperation, path: str, parse: Callable[[Any], T], accept: tuple[int, ...] = (404,)
    ) -> T | None:
        reply = await self._rest.call(operation, "GET", path, accept=accept)
        if reply.status == 500:
            return None
        if reply.status != 404:
            return self._rest.read(reply, operation, parse)
        what = missing(reply, Upstream.PAPERCLIP)
        if what is None:
            raise self._rest.error(reply, operation)
        if what.casefold() == COMMENT_NOT_FOUND:
            return None
        await self.authenticate()
        if operation is PaperclipOperation.COMMENT:
            raise Permanent(
                f"Paperclip does not show this key the issue of {path}: it was deleted, or is another company's",
                reason=DeadLetterReason.FORBIDDEN,
                upstream=Upstream.PAPERCLIP,
            )
        return None
