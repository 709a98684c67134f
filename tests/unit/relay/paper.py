"""A Paperclip on paper: a company's issues, comments, runs and activity, with a clock, shaped as the real answers.

Implements what `PaperclipClient` gives, so that feeds, audit and backfill run on it without a wire.
"""

import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.relay.event_builder import Announcement, Json
from consumer.relay.times import instant, iso

NOON = instant("2026-11-30T12:00:00.000Z")
COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"
USER = "local-board"


def new_id() -> str:
    return str(uuid.uuid4())


FORBIDDEN = Permanent("403", reason=DeadLetterReason.FORBIDDEN, upstream=Upstream.PAPERCLIP)


class Paper:
    """The company. `now` is everybody's clock; `tick` moves it.

    Attributes:
        failures: errors that the next calls of a method raise, one each.
        calls: how often each method was called.
    """

    def __init__(self) -> None:
        self.now = NOON
        self.issues_: dict[str, Json] = {}
        self.comments_: dict[str, Json] = {}
        self.rows: list[Json] = []
        self.activities: list[Json] = []
        self.runs_: dict[str, Json] = {}
        self.statuses: dict[str, list[str]] = {}
        self.agents_: list[str] = [new_id(), new_id()]
        self.hidden: set[str] = set()
        self.auditable = True
        self.failures: dict[str, list[Exception]] = defaultdict(list)
        self.calls: dict[str, int] = defaultdict(int)

    # What happens

    def tick(self, seconds: float) -> None:
        self.now += seconds

    def open(self, title: str = "Ship it", agent: str | None = None) -> str:
        id_ = new_id()
        self.issues_[id_] = {
            "id": id_,
            "companyId": COMPANY,
            "identifier": "ACM-1",
            "title": title,
            "description": "All of it.",
            "assigneeAgentId": agent,
            "createdByUserId": USER,
            "originId": None,
            "createdAt": iso(self.now),
            "updatedAt": iso(self.now),
        }
        return id_

    def say(self, issue: str, body: str = "Said.", agent: str | None = None, *, told: bool = True, **more: Any) -> str:
        """A comment; `told`: the audit feed has it. No two are made at the same time (eighths are exact)."""
        id_ = new_id()
        self.tick(0.125)
        self.comments_[id_] = {
            "id": id_,
            "companyId": COMPANY,
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
            "createdAt": iso(self.now),
            "updatedAt": iso(self.now),
        } | more
        self.issues_[issue]["updatedAt"] = iso(self.now)
        if told:
            self.tell("issue.comment_added", issue, id_, agent, bodySnippet=body[:120])
        return id_

    def tell(self, action: str, issue: str, comment: str, agent: str | None = None, **details: Any) -> None:
        about = {"commentId": comment, "identifier": "ACM-1", "issueTitle": self.issues_[issue]["title"]} | details
        self.rows.append(
            {
                "id": new_id(),
                "companyId": COMPANY,
                "actorType": "agent" if agent else "user",
                "actorId": agent or USER,
                "action": action,
                "entityType": "issue",
                "entityId": issue,
                "agentId": agent,
                "runId": None,
                "responsibleUserId": USER,
                "createdAt": iso(self.now),
                "details": None if issue in self.hidden else about,
            }
        )
        self.activities.append({"issue": issue, "createdAt": iso(self.now), "action": action, "details": about})

    def delete(self, comment: str, *, told: bool = True) -> None:
        found = self.comments_[comment]
        found |= {"body": "", "deletedAt": iso(self.now), "deletedByType": "user", "deletedByUserId": USER}
        self.issues_[found["issueId"]]["updatedAt"] = iso(self.now)
        if told:
            self.tell("issue.comment_deleted", found["issueId"], comment)

    def cancel(self, comment: str, *, told: bool = True) -> None:
        issue = self.comments_.pop(comment)["issueId"]
        self.issues_[issue]["updatedAt"] = iso(self.now)
        if told:
            self.tell("issue.comment_cancelled", issue, comment)

    def assign(self, issue: str, agent: str | None) -> None:
        change = {"assigneeAgentId": {"from": self.issues_[issue]["assigneeAgentId"], "to": agent}}
        self.issues_[issue] |= {"assigneeAgentId": agent, "updatedAt": iso(self.now)}
        row = {"issue": issue, "createdAt": iso(self.now), "action": "issue.updated", "details": {"changes": change}}
        self.activities.append(row)

    def start(self, agent: str, issue: str | None = None, *, status: str = "running", **context: Any) -> str:
        id_ = new_id()
        self.runs_[id_] = {
            "id": id_,
            "companyId": COMPANY,
            "agentId": agent,
            "invocationSource": "assignment",
            "triggerDetail": "system",
            "status": status,
            "startedAt": None if status == "queued" else iso(self.now),
            "finishedAt": None,
            "error": None,
            "errorCode": None,
            "createdAt": iso(self.now),
            "updatedAt": iso(self.now),
            "contextSnapshot": {"issueId": issue} | context,
        }
        return id_

    def end(self, run: str, status: str = "succeeded", error: str | None = None) -> None:
        more = {"status": status, "error": error, "finishedAt": iso(self.now), "updatedAt": iso(self.now)}
        self.runs_[run] |= more

    # What Paperclip answers

    def _called(self, method: str) -> None:
        self.calls[method] += 1
        if self.failures[method]:
            raise self.failures[method].pop(0)

    async def audit_feed(self, company_id: str, since: str) -> AsyncIterator[Json]:
        self._called("audit_feed")
        if not self.auditable:
            raise FORBIDDEN
        for row in sorted(self.rows, key=lambda each: str(each["createdAt"]), reverse=True):
            if row["createdAt"] >= since:
                yield dict(row)

    async def issues(self, company_id: str, since: str | None = None) -> AsyncIterator[Json]:
        self._called("issues")
        for row in sorted(self.issues_.values(), key=lambda each: str(each["updatedAt"]), reverse=True):
            if row["id"] not in self.hidden and (since is None or row["updatedAt"] > since):
                yield dict(row)

    async def comments(self, issue_id: str, *, oldest_first: bool) -> AsyncIterator[Json]:
        self._called("comments")
        rows = [each for each in self.comments_.values() if each["issueId"] == issue_id]
        for row in sorted(rows, key=lambda each: str(each["createdAt"]), reverse=not oldest_first):
            yield dict(row)

    async def comment_json(self, issue_id: str, comment_id: str) -> Json | None:
        self._called("comment_json")
        return self.comments_.get(comment_id)

    async def issue_json(self, issue_id: str) -> Json | None:
        self._called("issue_json")
        found = self.issues_.get(issue_id)
        return dict(found) if found is not None else None

    async def activity(self, issue_id: str) -> list[Json]:
        self._called("activity")
        return [row for row in self.activities if row["issue"] == issue_id]

    async def runs(self, company_id: str, limit: int, agent_id: str | None = None) -> list[Json]:
        self._called("runs")
        rows = [dict(run) for run in self.runs_.values() if agent_id in (None, run["agentId"])]
        return sorted(rows, key=lambda each: str(each["createdAt"]), reverse=True)[:limit]

    async def run_json(self, run_id: str) -> Json | None:
        self._called("run_json")
        return self.runs_.get(run_id)

    async def run_end_statuses(self, run_id: str) -> list[str]:
        self._called("run_end_statuses")
        return self.statuses.get(run_id, [])

    async def agents(self, company_id: str) -> list[str]:
        self._called("agents")
        return list(self.agents_)


class Post:
    """What reaches Kafka, in the place of an `Outbox`."""

    def __init__(self) -> None:
        self.sent: list[Announcement] = []

    def knows(self, event_id: str) -> bool:
        return any(each.id == event_id for each in self.sent)

    async def send(self, announcements: Any) -> int:
        new = [each for each in announcements if not self.knows(each.id)]
        self.sent += new
        return len(new)

    @property
    def subjects(self) -> list[tuple[str, str]]:
        """Type and subject of each, in order."""
        return [(each.type, each.subject) for each in self.sent]
