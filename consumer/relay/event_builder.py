"""Builds plugin event envelopes from Paperclip's answers: equal to what its plugin bus sends, with stable ids.

Each envelope follows Paperclip 2026.824's own code: `persistActivity` for comments and
`publishRunLifecyclePluginEvent` for runs. Deleted and cancelled comments get envelopes, too, which Paperclip's bus does
not send.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from consumer.paperclip.models import Json
from schemas.events import SNIPPET_UNITS

NAMESPACE = uuid.UUID("b3a1f2de-90cf-5ad1-a0a1-6d1df5f0c0de")
"""Never change it: consumers recognise a repeated event by its id."""
LONGEST_TEXT = 1_000
"""Characters of a text in an envelope that does not fit its topic."""
WAKE_CHARACTERS = 2_000
"""How much of a comment a recall query can hold."""

CREATED, DELETED, CANCELLED = "issue.comment.created", "issue.comment.deleted", "issue.comment.cancelled"
STARTED, FINISHED = "agent.run.started", "agent.run.finished"
ACTIONS = {
    "issue.comment_added": CREATED,
    "issue.comment_created": CREATED,
    "issue.comment_deleted": DELETED,
    "issue.comment_cancelled": CANCELLED,
}
"""Event types by the audit feed's actions."""
RUN_ENDS = {
    "succeeded": FINISHED,
    "failed": "agent.run.failed",
    "timed_out": "agent.run.failed",
    "cancelled": "agent.run.cancelled",
}
"""Event types by the status with which a run ends."""
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
class OutgoingEvent:
    """An event to publish.

    Attributes:
        envelope: without embedded objects.
        embedded: whole objects for its payload: `comment`, `issue`, `run`.
        replay: the event is not fresh: its handler asks Paperclip for the current state.
        repair: text that makes Hindsight's operation a new one; "" for none.
    """

    envelope: Json
    embedded: Mapping[str, Json] = field(default_factory=dict)
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
    def key(self) -> str:
        """The record's key: the id of the run or of the comment."""
        return str(self.envelope["payload"]["runId" if self.is_run else "commentId"])

    @property
    def occurred_at(self) -> str:
        return str(self.envelope["occurredAt"])

    def value(self) -> Json:
        """The envelope with the embedded objects in its payload."""
        return self.envelope | {"payload": self.envelope["payload"] | self.embedded}


def event_id(event_type: str, key: str) -> str:
    """UUIDv5 of the type and of the run's or comment's id: the same event always has the same id."""
    return str(uuid.uuid5(NAMESPACE, f"{event_type}:{key}"))


def event_from_activity(row: Json) -> Json | None:
    """The envelope of a row of the audit feed; None if the row names no comment (other actions, hidden issues)."""
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


def event_from_comment(comment: Json, issue: Json) -> Json:
    """The envelope of a comment without activity: `created`, or `deleted` if it is a tombstone."""
    deleted = comment["deletedAt"] is not None
    payload = _comment_payload(comment["id"], issue)
    if deleted:
        deleter = {
            name: comment.get(name)
            for name in ("deletedByType", "deletedByAgentId", "deletedByUserId", "deletedByRunId")
        }
        agent, run, user = deleter["deletedByAgentId"], deleter["deletedByRunId"], deleter["deletedByUserId"]
        actor = _actor(agent, user)
        payload |= {"source": "author_delete"} | deleter | {"deletedAt": comment["deletedAt"]}
    else:
        agent, run = comment["authorAgentId"], comment["createdByRunId"]
        user = comment.get("onBehalfOfUserId") or comment["authorUserId"]
        actor = _actor(agent, comment["authorUserId"])
        reason = (comment.get("metadata") or {}).get("authorizationReason")
        payload |= {"bodySnippet": snippet(comment["body"] or ""), "authorizationReason": reason}
    return _envelope(
        DELETED if deleted else CREATED,
        comment["id"],
        occurred_at=comment["deletedAt"] or comment["createdAt"],
        actor=actor,
        entity=("issue", issue["id"]),
        company=comment["companyId"],
        payload=payload | {"agentId": agent, "runId": run, "responsibleUserId": user},
    )


def event_from_vanished_comment(comment_id: str, issue: Json, *, at: str) -> Json:
    """The envelope of a comment whose row is gone, when no activity says who cancelled it."""
    return _envelope(
        CANCELLED,
        comment_id,
        occurred_at=at,
        actor=_actor(None, None),
        entity=("issue", issue["id"]),
        company=issue["companyId"],
        payload=_comment_payload(comment_id, issue)
        | {"source": "queue_cancel", "agentId": None, "runId": None, "responsibleUserId": None},
    )


def events_from_run(run: Json, ended_before: Iterable[str] = ()) -> list[Json]:
    """The envelopes of all transitions of a run so far, in order.

    Args:
        ended_before: statuses with which the run had ended, by its log, before it was cancelled: a killed process ends
            `succeeded` or `failed` first, and Paperclip announces both.
    """
    envelopes = []
    if run["startedAt"] is not None:
        envelopes.append(_event_from_run(run, STARTED, "running"))
    status = run["status"]
    if status == "cancelled" and run["startedAt"] is not None:
        ends = dict.fromkeys(RUN_ENDS[end] for end in ended_before if end in RUN_ENDS and end != status)
        envelopes += [_event_from_run(run, end, "succeeded" if end == FINISHED else "failed") for end in ends]
    if status in RUN_ENDS:
        envelopes.append(_event_from_run(run, RUN_ENDS[status], status))
    return envelopes


def cut_texts(envelope: Json) -> Json:
    """The envelope with its payload's long texts cut (titles, errors), and their names in `truncatedFields`."""
    payload = envelope["payload"]
    long = {name: text for name, text in payload.items() if isinstance(text, str) and len(text) > LONGEST_TEXT}
    cut = {name: text[:LONGEST_TEXT] for name, text in long.items()}
    return envelope | {"payload": payload | cut | {"truncatedFields": sorted(cut)}}


def trim_issue(issue: Json, *, description: bool) -> Json:
    """The fields of an issue that handlers need, with its description or without."""
    names = (*_ISSUE_FIELDS, "description") if description else _ISSUE_FIELDS
    return {name: issue[name] for name in names if name in issue}


def trim_run(run: Json) -> Json:
    """The fields of a run that handlers need, with its wake-up context. Output and environment are left out."""
    context = run.get("contextSnapshot") or {}
    trimmed_context = {name: context[name] for name in ("issueId", "paperclipWake") if name in context}
    return {name: run[name] for name in _RUN_FIELDS if name in run} | {"contextSnapshot": trimmed_context}


def trim_wake_comment(comment: Json) -> Json:
    """The fields of a comment that a recall query needs when the comment wakes a run."""
    trimmed = {name: comment[name] for name in ("id", "createdAt", "sourceTrust")}
    return trimmed | {"body": (comment["body"] or "")[:WAKE_CHARACTERS]}


def snippet(body: str) -> str:
    """The start of a body as JavaScript cuts it: it can end in half an emoji."""
    units = body[:SNIPPET_UNITS].encode("utf-16-le", "surrogatepass")[: 2 * SNIPPET_UNITS]
    return units.decode("utf-16-le", "surrogatepass")


def _comment_payload(comment_id: str, issue: Json) -> Json:
    return {"commentId": comment_id, "identifier": issue.get("identifier"), "issueTitle": issue.get("title")}


def _event_from_run(run: Json, event_type: str, status: str) -> Json:
    """The envelope of one transition. Fields of a later status are left out of an earlier one's."""
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
    key: str,
    *,
    occurred_at: str,
    actor: tuple[str, str],
    entity: tuple[str, str],
    company: str,
    payload: Json,
) -> Json:
    return {
        "eventId": event_id(event_type, key),
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
