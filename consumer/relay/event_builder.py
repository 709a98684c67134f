"""What Paperclip answers to plugin event envelopes: equal to what its plugin bus sends, with ids that never change.

The rule of each envelope is Paperclip 2026.824's own: `persistActivity` for comments, `publishRunLifecyclePluginEvent`
for runs. Deleted and cancelled comments are activity too, though its bus does not send them.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.events import SNIPPET_UNITS

Json = dict[str, Any]

NAMESPACE = uuid.UUID("b3a1f2de-90cf-5ad1-a0a1-6d1df5f0c0de")
"""Never change it: consumers know a repeated event by its id."""
WAKE_CHARACTERS = 2_000
"""How much of a comment a query can hold."""

CREATED, DELETED, CANCELLED = "issue.comment.created", "issue.comment.deleted", "issue.comment.cancelled"
STARTED = "agent.run.started"
ACTIONS = {
    "issue.comment_added": CREATED,
    "issue.comment_created": CREATED,
    "issue.comment_deleted": DELETED,
    "issue.comment_cancelled": CANCELLED,
}
"""What the audit feed calls what happened to a comment."""
RUN_ENDS = {
    "succeeded": "agent.run.finished",
    "failed": "agent.run.failed",
    "timed_out": "agent.run.failed",
    "cancelled": "agent.run.cancelled",
}
TERMINAL = frozenset({*RUN_ENDS, "interrupted"})

_ISSUE_FIELDS = (
    "id",
    "companyId",
    "identifier",
    "title",
    "status",
    "assigneeAgentId",
    "assigneeUserId",
    "createdByAgentId",
    "createdByUserId",
    "creatorEmail",
    "responsibleUserId",
    "originKind",
    "originId",
    "createdAt",
    "updatedAt",
)
_RUN_FIELDS = (
    "id",
    "companyId",
    "agentId",
    "status",
    "invocationSource",
    "triggerDetail",
    "startedAt",
    "finishedAt",
    "createdAt",
    "updatedAt",
)


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event to publish.

    Attributes:
        envelope: without copies of objects.
        copies: whole objects that go into its payload: `comment`, `issue`, `run`.
        replay: it is not fresh: whoever handles it asks Paperclip how things stand.
        repair: text that makes Hindsight's operation a new one; "" for none.
    """

    envelope: Json
    copies: Mapping[str, Json] = field(default_factory=dict)
    replay: bool = False
    repair: str = ""

    @property
    def id(self) -> str:
        return str(self.envelope["eventId"])

    @property
    def type(self) -> str:
        return str(self.envelope["eventType"])

    @property
    def is_run(self) -> bool:
        return self.type.startswith("agent.run.")

    @property
    def subject(self) -> str:
        """The run's or the comment's id: the record's key."""
        return str(self.envelope["payload"]["runId" if self.is_run else "commentId"])

    @property
    def occurred_at(self) -> str:
        return str(self.envelope["occurredAt"])

    def value(self) -> Json:
        """The envelope with the copies in its payload."""
        return self.envelope | {"payload": self.envelope["payload"] | self.copies}


def event_id(event_type: str, subject: str) -> str:
    """UUIDv5 of the type and of the run's or comment's id: the same event always has the same."""
    return str(uuid.uuid5(NAMESPACE, f"{event_type}:{subject}"))


def of_activity(row: Json) -> Json | None:
    """The envelope of a row of the audit feed; None if it tells of no comment, or hides which (a hidden issue's)."""
    details = row["details"]
    event_type = ACTIONS.get(row["action"])
    if event_type is None or not details or not details.get("commentId"):
        return None
    return _envelope(
        event_type,
        str(details["commentId"]),
        occurred_at=row["createdAt"],
        actor=(row["actorType"], row["actorId"]),
        entity=("issue", row["entityId"]),
        company=row["companyId"],
        payload=details | {name: row[name] for name in ("agentId", "runId", "responsibleUserId")},
    )


def of_comment(comment: Json, issue: Json) -> Json:
    """The envelope of a comment that no activity tells of: `created`, or `deleted` if only its tombstone stands."""
    deleted = comment["deletedAt"] is not None
    about = {"commentId": comment["id"], "identifier": issue.get("identifier"), "issueTitle": issue.get("title")}
    if deleted:
        by = {
            name: comment.get(name)
            for name in ("deletedByType", "deletedByAgentId", "deletedByUserId", "deletedByRunId")
        }
        actor = _actor(by["deletedByAgentId"], by["deletedByUserId"])
        payload = about | {"source": "author_delete"} | by | {"deletedAt": comment["deletedAt"]}
        agent, run, user = by["deletedByAgentId"], by["deletedByRunId"], by["deletedByUserId"]
    else:
        actor = _actor(comment["authorAgentId"], comment["authorUserId"])
        reason = (comment.get("metadata") or {}).get("authorizationReason")
        payload = about | {"bodySnippet": snippet(comment["body"] or ""), "authorizationReason": reason}
        agent, run = comment["authorAgentId"], comment["createdByRunId"]
        user = comment.get("onBehalfOfUserId") or comment["authorUserId"]
    return _envelope(
        DELETED if deleted else CREATED,
        comment["id"],
        occurred_at=comment["deletedAt"] or comment["createdAt"],
        actor=actor,
        entity=("issue", issue["id"]),
        company=comment["companyId"],
        payload=payload | {"agentId": agent, "runId": run, "responsibleUserId": user},
    )


def of_vanished(comment: str, issue: Json, *, at: str) -> Json:
    """The envelope of a comment whose row is gone, with no activity to tell who cancelled it."""
    about = {"commentId": comment, "identifier": issue.get("identifier"), "issueTitle": issue.get("title")}
    return _envelope(
        CANCELLED,
        comment,
        occurred_at=at,
        actor=_actor(None, None),
        entity=("issue", issue["id"]),
        company=issue["companyId"],
        payload=about | {"source": "queue_cancel", "agentId": None, "runId": None, "responsibleUserId": None},
    )


def of_run(run: Json, ended_before: Iterable[str] = ()) -> list[Json]:
    """The envelopes of all that a run has gone through so far, in order.

    Args:
        ended_before: statuses that its log says it ended with, before it was cancelled all the same: a process that is
            killed ends `succeeded` or `failed` first, and Paperclip announces both.
    """
    found = []
    if run["startedAt"] is not None:
        found.append(_of_run(run, STARTED, "running"))
    status = run["status"]
    if status == "cancelled" and run["startedAt"] is not None:
        ends = dict.fromkeys(RUN_ENDS[each] for each in ended_before if each in RUN_ENDS and each != status)
        found += [_of_run(run, end, "succeeded" if end == RUN_ENDS["succeeded"] else "failed") for end in ends]
    if status in RUN_ENDS:
        found.append(_of_run(run, RUN_ENDS[status], status))
    return found


def issue_copy(issue: Json, *, described: bool) -> Json:
    """What handlers may need of an issue, with its description or without."""
    names = (*_ISSUE_FIELDS, "description") if described else _ISSUE_FIELDS
    return {name: issue[name] for name in names if name in issue}


def run_copy(run: Json) -> Json:
    """What handlers may need of a run: what woke it. Its output and its environment stay where they are."""
    context = run.get("contextSnapshot") or {}
    kept = {name: context[name] for name in ("issueId", "paperclipWake") if name in context}
    return {name: run[name] for name in _RUN_FIELDS if name in run} | {"contextSnapshot": kept}


def wake_comment(comment: Json) -> Json:
    """What a query may need of a comment that wakes a run."""
    kept = {name: comment[name] for name in ("id", "createdAt", "sourceTrust")}
    return kept | {"body": (comment["body"] or "")[:WAKE_CHARACTERS]}


def snippet(body: str) -> str:
    """The body's start as JavaScript cuts it: it can end in half an emoji."""
    units = body[:SNIPPET_UNITS].encode("utf-16-le", "surrogatepass")[: 2 * SNIPPET_UNITS]
    return units.decode("utf-16-le", "surrogatepass")


def _of_run(run: Json, event_type: str, status: str) -> Json:
    """Fields of a later status say nothing of an earlier one."""
    ended, clean = event_type != STARTED, status in ("running", "succeeded")
    finished_at = run["finishedAt"] if ended else None
    return _envelope(
        event_type,
        run["id"],
        occurred_at=finished_at or (run["updatedAt"] if ended else run["startedAt"]),
        actor=("agent", run["agentId"]),
        entity=("heartbeat_run", run["id"]),
        company=run["companyId"],
        payload={
            "runId": run["id"],
            "agentId": run["agentId"],
            "status": status,
            "invocationSource": run["invocationSource"],
            "triggerDetail": run["triggerDetail"],
            "error": None if clean else run["error"],
            "errorCode": None if clean else run["errorCode"],
            "issueId": (run.get("contextSnapshot") or {}).get("issueId"),
            "startedAt": run["startedAt"],
            "finishedAt": finished_at,
        },
    )


def _envelope(
    event_type: str,
    subject: str,
    *,
    occurred_at: str,
    actor: tuple[str, str],
    entity: tuple[str, str],
    company: str,
    payload: Json,
) -> Json:
    return {
        "eventId": event_id(event_type, subject),
        "eventType": event_type,
        "occurredAt": occurred_at,
        "actorId": actor[1],
        "actorType": actor[0],
        "entityId": entity[1],
        "entityType": entity[0],
        "companyId": company,
        "payload": payload,
    }


def _actor(agent: str | None, user: str | None) -> tuple[str, str]:
    if agent is not None:
        return "agent", agent
    return ("user", user) if user is not None else ("system", "system")
