"""Paperclip's plugin event envelope as on the topics (camelCase JSON).

Identity is strict (UUIDs, put into lower case); all else is as lenient as the real systems are varied. Unknown fields
are kept. `payload.comment`, `payload.issue` and `payload.run` are ours to add: full objects that save a worker a fetch.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from schemas.paperclip import CamelModel, Comment, Issue, Run, Uuid

REPLAY_HEADER = "replay"
"""Header of a record that is not fresh, whatever its value."""
REPAIR_HEADER = "repair"
"""Header whose value makes a retain's operation id a new one, so that Hindsight runs the retain again."""
SNIPPET_UNITS = 120
"""Length at which Paperclip cuts `bodySnippet`, in UTF-16 code units."""


class RunPayload(CamelModel):
    """`payload` of `agent.run.*`. Timer and manual runs have no issue.

    `issue_id` is what the wake-up names: normally an id, but also an identifier (`PAP-12`) or any other text.
    """

    run_id: Uuid
    agent_id: Uuid | None = None
    issue_id: str | None = None
    status: str | None = None
    invocation_source: str | None = None
    trigger_detail: str | None = None
    error: str | None = None
    error_code: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run: Run | None = None
    issue: Issue | None = None


class CommentPayload(CamelModel):
    """`payload` of `issue.comment.*`.

    `body_snippet` is cut at 120 UTF-16 units and can end in a lone surrogate; events of a relay stop have none.
    `agent_id` is the acting agent, null for users and the system.
    """

    comment_id: Uuid | None = None
    body_snippet: str | None = None
    identifier: str | None = None
    issue_title: str | None = None
    authorization_reason: str | None = None
    agent_id: Uuid | None = None
    run_id: Uuid | None = None
    responsible_user_id: str | None = None
    comment: Comment | None = None
    issue: Issue | None = None


class Envelope(CamelModel):
    """The fields of all events. `actor_id` is not a UUID for people (`local-board`) and the system."""

    event_id: Uuid
    event_type: Annotated[str, StringConstraints(min_length=1)]
    occurred_at: str | None = None
    actor_id: str | None = None
    actor_type: str | None = None
    entity_id: str | None = None
    entity_type: str | None = None
    company_id: Uuid
    payload: dict[str, Any] = Field(default_factory=dict)


class _RunEvent(Envelope):
    payload: RunPayload  # type: ignore[assignment]


class _CommentEvent(Envelope):
    """`entity_id` is the comment's issue."""

    entity_id: Uuid
    payload: CommentPayload  # type: ignore[assignment]


class AgentRunStarted(_RunEvent):
    """A run of an agent has started. Can be published again for the same run with a new eventId."""

    event_type: Literal["agent.run.started"]


class AgentRunFinished(_RunEvent):
    """A run has ended well, or was cancelled (then `agent.run.cancelled` follows)."""

    event_type: Literal["agent.run.finished"]


class AgentRunFailed(_RunEvent):
    """A run has failed or timed out."""

    event_type: Literal["agent.run.failed"]


class AgentRunCancelled(_RunEvent):
    """A run was cancelled, perhaps before it started."""

    event_type: Literal["agent.run.cancelled"]


class IssueCommentCreated(_CommentEvent):
    """A comment was made on an issue."""

    event_type: Literal["issue.comment.created"]


class IssueCommentDeleted(_CommentEvent):
    """A comment was deleted: its row is a tombstone with no body. Made from the activity `issue.comment_deleted`."""

    event_type: Literal["issue.comment.deleted"]


class IssueCommentCancelled(_CommentEvent):
    """A queued comment was cancelled: its row is removed. Made from the activity `issue.comment_cancelled`."""

    event_type: Literal["issue.comment.cancelled"]


Event = (
    AgentRunStarted
    | AgentRunFinished
    | AgentRunFailed
    | AgentRunCancelled
    | IssueCommentCreated
    | IssueCommentDeleted
    | IssueCommentCancelled
)
RunEnd = AgentRunFinished | AgentRunFailed | AgentRunCancelled


EVENT_TYPES: dict[str, type[Envelope]] = {
    "agent.run.started": AgentRunStarted,
    "agent.run.finished": AgentRunFinished,
    "agent.run.failed": AgentRunFailed,
    "agent.run.cancelled": AgentRunCancelled,
    "issue.comment.created": IssueCommentCreated,
    "issue.comment.deleted": IssueCommentDeleted,
    "issue.comment.cancelled": IssueCommentCancelled,
}
"""The event types that are handled; others are counted as ignored."""
