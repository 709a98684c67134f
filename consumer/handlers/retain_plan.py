"""Decides what to retain of a comment, and in which bank. Pure, so that the handler and reconcile decide alike."""

from dataclasses import dataclass

from consumer.handlers.results import Skipped, SkipReason
from consumer.memory.attribution import resolve_author
from consumer.memory.banks import choose_bank
from consumer.memory.documents import Memory, build_metadata
from consumer.memory.policy import MemoryPolicy
from consumer.memory.sanitize import is_blank, sanitize
from schemas.paperclip import Comment, Issue


@dataclass(frozen=True, slots=True)
class LoadedComment:
    """A living comment, and what its event adds where the comment itself says nothing.

    Attributes:
        agent_id: the agent that the event names; not necessarily the author.
        occurred_at: the time of the event, ISO 8601.
        truncated: only the beginning of the body is known.
    """

    comment: Comment
    company_id: str
    issue_id: str
    agent_id: str | None = None
    run_id: str | None = None
    occurred_at: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class RetainPlan:
    """The document to store, and its bank."""

    bank: str
    memory: Memory


def plan_retain(loaded: LoadedComment, issue: Issue | None, policy: MemoryPolicy) -> RetainPlan | Skipped:
    """Plan the retain of a comment.

    Args:
        issue: read where `needs_issue`; None if it was not loaded or is gone.
    """
    if not policy.auto_retain:
        return Skipped(SkipReason.AUTO_RETAIN_OFF)
    # What may be retained of the comment.
    content = _content(loaded.comment, policy)
    if isinstance(content, Skipped):
        return content
    # The bank.
    agent = resolve_author(loaded.comment, loaded.agent_id)
    if agent is None and issue is not None:
        agent = issue.assignee_agent_id
    if agent is None:
        return Skipped(SkipReason.NO_AGENT)
    if not policy.is_enabled(agent):
        return Skipped(SkipReason.AGENT_NOT_ENABLED)
    choice = choose_bank(policy, company=loaded.company_id, agent=agent, issue=issue)
    if choice is None:
        return Skipped(SkipReason.NO_USER)
    # The document.
    timestamp = loaded.comment.created_at or loaded.occurred_at
    metadata = _metadata(loaded, agent, choice.user)
    return RetainPlan(choice.bank, Memory(loaded.comment.id, content, timestamp, metadata))


def needs_issue(loaded: LoadedComment, policy: MemoryPolicy) -> bool:
    """Whether `plan_retain` reads the issue: for its assignee if no agent wrote the comment, or for its user."""
    if isinstance(_content(loaded.comment, policy), Skipped):
        return False
    agent = resolve_author(loaded.comment, loaded.agent_id)
    return agent is None or (policy.needs_user and policy.is_enabled(agent))


def _content(comment: Comment, policy: MemoryPolicy) -> str | Skipped:
    by_system = comment.author_type == "system"
    notice = comment.presentation is not None and comment.presentation.kind == "system_notice"
    if (by_system or notice) and not policy.retain_system_comments:
        return Skipped(SkipReason.SYSTEM_COMMENT)
    if comment.source_trust is not None and comment.source_trust.is_quarantined:
        return Skipped(SkipReason.QUARANTINED)
    content = sanitize(comment.body or "")
    return Skipped(SkipReason.BLANK_COMMENT) if is_blank(content) else content


def _metadata(loaded: LoadedComment, agent: str, user: str | None) -> dict[str, str]:
    comment = loaded.comment
    values = {
        "agentId": agent,
        "companyId": loaded.company_id,
        "issueId": loaded.issue_id,
        "commentId": comment.id,
        "runId": comment.created_by_run_id or comment.derived_created_by_run_id or loaded.run_id,
        "authorType": comment.author_type,
        "userId": user,
        "truncated": "true" if loaded.truncated else None,
    }
    return build_metadata(values)
