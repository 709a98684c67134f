"""Who a memory belongs to: the issue's user, and the agent that a comment is by."""

from collections.abc import Collection

from consumer.memory.policy import UserSource
from schemas.objects import Comment, Issue


def user_of(issue: Issue, sources: Collection[UserSource]) -> str | None:
    """The issue's user, from those fields that may name one; None if none does.

    `creatorEmail`, else the last `::` segment of `originId` with an `@`, else `createdByUserId`. The first two are the
    plugin's rule; today's Paperclip has no `creatorEmail`, and its `originId` seldom holds an address.
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


def author_of(comment: Comment, event_agent: str | None) -> str | None:
    """The agent that wrote the comment: its author, else the derived author, else the agent that the event names.

    None for a comment of a user or the system: it belongs to the issue's assignee.
    """
    return comment.author_agent_id or comment.derived_author_agent_id or event_agent
