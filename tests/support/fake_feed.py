"""A fake Paperclip: one company's issues, comments, runs and activity, with a clock, in the shape of real answers."""

import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import Any

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.paperclip.models import Json
from consumer.relay.event_builder import OutgoingEvent
from schemas.timestamps import format_timestamp, parse_timestamp

NOON = parse_timestamp("2026-11-30T12:00:00.000Z")
COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
USER = "local-board"
FORBIDDEN = Permanent("403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP)


def new_id() -> str:
    return str(uuid.uuid4())


class FakeFeedClient:
    """Implements `PaperclipFeed` for one company. `now` is everybody's clock; `advance` moves it.

    Attributes:
        hidden: issues that no list shows.
        end_statuses: what a run's log says, by run.
        failures: errors that the next calls of a method raise, one each.
        calls: number of calls of each method.
    """

    def __init__(self, company: str = COMPANY) -> None:
        self.company = company
        self.now = NOON
        self.issues_by_id: dict[str, Json] = {}
        self.comments_by_id: dict[str, Json] = {}
        self.runs_by_id: dict[str, Json] = {}
        self.audit_rows: list[Json] = []
        self.activity_rows: list[Json] = []
        self.end_statuses: dict[str, list[str]] = {}
        self.agent_ids: list[str] = [new_id(), new_id()]
        self.hidden: set[str] = set()
        self.audit_allowed = True
        self.failures: dict[str, list[Exception]] = defaultdict(list)
        self.calls: dict[str, int] = defaultdict(int)

    # Changes

    def advance(self, seconds: float) -> None:
        self.now += seconds

    @property
    def time(self) -> str:
        """`now` as Paperclip writes it."""
        return format_timestamp(self.now)

    def add_issue(self, title: str = "Ship it", agent: str | None = None) -> str:
        id_ = new_id()
        self.issues_by_id[id_] = {
            "id": id_,
            "companyId": self.company,
            "identifier": "ACM-1",
            "title": title,
            "description": "All of it.",
            "assigneeAgentId": agent,
            "createdByUserId": USER,
            "originId": None,
            "createdAt": self.time,
            "updatedAt": self.time,
        }
        return id_

    def add_comment(
        self, issue: str, body: str = "Said.", agent: str | None = None, *, audited: bool = True, **more: Any
    ) -> str:
        """A comment; `audited`: the audit feed has it. No two have the same time (eighths are exact floats)."""
        id_ = new_id()
        self.advance(0.125)
        self.comments_by_id[id_] = {
            "id": id_,
            "companyId": self.company,
            "issueId": issue,
            "authorAgentId": agent,
            "authorUserId": None if agent else USER,
            "onBehalfOfUserId": None,
            "authorType": "agent" if agent else "user",
            "createdByRunId": None,
            "derivedAuthorAgentId": None,
            "body": body,
            "presentation": None,
            "metadata": None,
            "deletedAt": None,
            "sourceTrust": None,
            "createdAt": self.time,
            "updatedAt": self.time,
        } | more
        self.issues_by_id[issue]["updatedAt"] = self.time
        if audited:
            self.add_audit_row("issue.comment_added", issue, id_, agent, bodySnippet=body[:120])
        return id_

    def add_audit_row(self, action: str, issue: str, comment: str, agent: str | None = None, **more: Any) -> None:
        details = {"commentId": comment, "identifier": "ACM-1", "issueTitle": self.issues_by_id[issue]["title"]} | more
        self.audit_rows.append(
            {
                "id": new_id(),
                "companyId": self.company,
                "actorType": "agent" if agent else "user",
                "actorId": agent or USER,
                "action": action,
                "entityType": "issue",
                "entityId": issue,
                "agentId": agent,
                "runId": None,
                "responsibleUserId": USER,
                "createdAt": self.time,
                "details": None if issue in self.hidden else details,
            }
        )
        self.activity_rows.append({"issue": issue, "createdAt": self.time, "action": action, "details": details})

    def delete_comment(self, comment: str, *, audited: bool = True) -> None:
        row = self.comments_by_id[comment]
        row |= {"body": "", "deletedAt": self.time, "deletedByType": "user", "deletedByUserId": USER}
        self.issues_by_id[row["issueId"]]["updatedAt"] = self.time
        if audited:
            self.add_audit_row("issue.comment_deleted", row["issueId"], comment)

    def cancel_comment(self, comment: str, *, audited: bool = True) -> None:
        issue = self.comments_by_id.pop(comment)["issueId"]
        self.issues_by_id[issue]["updatedAt"] = self.time
        if audited:
            self.add_audit_row("issue.comment_cancelled", issue, comment)

    def assign(self, issue: str, agent: str | None) -> None:
        change = {"assigneeAgentId": {"from": self.issues_by_id[issue]["assigneeAgentId"], "to": agent}}
        self.issues_by_id[issue] |= {"assigneeAgentId": agent, "updatedAt": self.time}
        details = {"changes": change}
        self.activity_rows.append(
            {"issue": issue, "createdAt": self.time, "action": "issue.updated", "details": details}
        )

    def start_run(self, agent: str, issue: str | None = None, *, status: str = "running", **context: Any) -> str:
        id_ = new_id()
        self.runs_by_id[id_] = {
            "id": id_,
            "companyId": self.company,
            "agentId": agent,
            "invocationSource": "assignment",
            "triggerDetail": "system",
            "status": status,
            "startedAt": None if status == "queued" else self.time,
            "finishedAt": None,
            "error": None,
            "errorCode": None,
            "createdAt": self.time,
            "updatedAt": self.time,
            "contextSnapshot": {"issueId": issue} | context,
        }
        return id_

    def end_run(self, run: str, status: str = "succeeded", error: str | None = None) -> None:
        end = {"status": status, "error": error, "finishedAt": self.time, "updatedAt": self.time}
        self.runs_by_id[run] |= end

    # Answers

    def _call(self, method: str) -> None:
        self.calls[method] += 1
        if self.failures[method]:
            raise self.failures[method].pop(0)

    async def audit_feed(self, company_id: str, since: str) -> AsyncIterator[Json]:
        self._call("audit_feed")
        if not self.audit_allowed:
            raise FORBIDDEN
        for row in _newest_first(self.audit_rows, "createdAt"):
            if row["createdAt"] >= since:
                yield dict(row)

    async def issues(self, company_id: str, since: str | None = None) -> AsyncIterator[Json]:
        self._call("issues")
        for row in _newest_first(self.issues_by_id.values(), "updatedAt"):
            if row["id"] not in self.hidden and (since is None or row["updatedAt"] > since):
                yield dict(row)

    async def comments(self, issue_id: str, *, oldest_first: bool) -> AsyncIterator[Json]:
        self._call("comments")
        rows = _newest_first((row for row in self.comments_by_id.values() if row["issueId"] == issue_id), "createdAt")
        for row in reversed(rows) if oldest_first else rows:
            yield dict(row)

    async def comment_json(self, issue_id: str, comment_id: str) -> Json | None:
        self._call("comment_json")
        return self.comments_by_id.get(comment_id)

    async def issue_json(self, issue_id: str) -> Json | None:
        self._call("issue_json")
        issue = self.issues_by_id.get(issue_id)
        return dict(issue) if issue is not None else None

    async def activity(self, issue_id: str) -> list[Json]:
        self._call("activity")
        return [row for row in self.activity_rows if row["issue"] == issue_id]

    async def runs(self, company_id: str, limit: int, agent_id: str | None = None) -> list[Json]:
        self._call("runs")
        rows = (dict(run) for run in self.runs_by_id.values() if agent_id in (None, run["agentId"]))
        return _newest_first(rows, "createdAt")[:limit]

    async def run_json(self, run_id: str) -> Json | None:
        self._call("run_json")
        return self.runs_by_id.get(run_id)

    async def run_end_statuses(self, run_id: str) -> list[str]:
        self._call("run_end_statuses")
        return self.end_statuses.get(run_id, [])

    async def agents(self, company_id: str) -> list[str]:
        self._call("agents")
        return list(self.agent_ids)


class RecordingPublisher:
    """Implements `EventSink`: keeps what would reach Kafka."""

    def __init__(self) -> None:
        self.events: list[OutgoingEvent] = []
        self._ids: set[str] = set()

    def was_published(self, event_id: str) -> bool:
        return event_id in self._ids

    async def publish(self, events: Iterable[OutgoingEvent]) -> int:
        new = {event.id: event for event in events if not self.was_published(event.id)}
        self.events += new.values()
        self._ids |= new.keys()
        return len(new)

    @property
    def published(self) -> list[tuple[str, str]]:
        """Type and key of each event, in order."""
        return [(event.type, event.key) for event in self.events]


def _newest_first(rows: Iterable[Json], time: str) -> list[Json]:
    return sorted(rows, key=lambda row: str(row[time]), reverse=True)
