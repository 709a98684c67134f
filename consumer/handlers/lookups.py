"""What several handlers look up: the issue of an event, and its user."""

from consumer.handlers.needs import Needs
from consumer.memory.identity import user_of
from consumer.memory.rules import Rules
from schemas.objects import Issue


def own_issue(carried: Issue | None, issue_id: str) -> Issue | None:
    """The issue that an event carries, if it is the event's own."""
    return carried if carried is not None and carried.id == issue_id else None


async def issue_of(carried: Issue | None, issue_id: str, needs: Needs) -> Issue | None:
    """The issue: carried by the event, else as Paperclip answers; None if it is gone or there is no Paperclip API."""
    issue = own_issue(carried, issue_id)
    if issue is None and needs.paperclip is not None:
        issue = await needs.paperclip.issue(issue_id)
    return issue


def bank_user(issue: Issue | None, rules: Rules) -> str | None:
    """The user whose bank it is; None where banks have no user, or none is known."""
    return user_of(issue, rules.user_sources) if issue is not None and rules.needs_user else None
