"""Attribution: the user of an issue, and the agent that wrote a comment."""

from collections.abc import Collection

from consumer.memory.policy import MemoryPolicy, UserSource
from schemas.paperclip import Comment, Issue


def resolve_user(issue: Issue, sources: Collection[UserSource]) -> str | None:
    """Return the issue's user, read from the given fields only; None if no field names one.

    The order is `creatorEmail`, the last `::` segment of `originId` that contains an `@`, `createdByUserId`. The first
    two are the plugin's rule. Current Paperclip versions have no `creatorEmail`, and their `originId` rarely contains
    an address.
    """
    if UserSource.CREATOR_EMAIL in sources and issue.creator_email and issue.creator_email.strip():
        return issue.creator_email
    if UserSource.ORIGIN_ID in sources:
        for segment in reversed((issue.origin_id or "").split("::")):
            if "@" in segment:
                return segment
    if UserSource.CREATED_BY_USER_ID in sources and issue.created_by_user_id and issue.created_by_user_id.strip():
        return issue.created_by_user_id
    return None


def resolve_bank_user(issue: Issue | None, policy: MemoryPolicy) -> str | None:
    """Return the user for the bank id; None if bank ids have no user part, or the issue names no user."""
    return resolve_user(issue, policy.user_sources) if issue is not None and policy.needs_user else None


def resolve_author(comment: Comment, event_agent: str | None) -> str | None:
    """Return the agent that wrote the comment: the author, else the derived author, else the agent of the event.

    None for a comment by a user or by the system: it belongs to the issue's assignee.
    """
    return comment.author_agent_id or comment.derived_author_agent_id or event_agent
