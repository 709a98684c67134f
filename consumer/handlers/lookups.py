"""What handlers and tools look up: the issue of an event, its user, and what is remembered."""

from consumer.errors import DeadLetterReason, Permanent
from consumer.handlers.context import Hindsight, Needs
from consumer.memory.attribution import user_of
from consumer.memory.policy import Rules
from consumer.memory.recall_query import halve, has_word
from schemas.objects import Issue

MAX_TOKENS = 1024
"""How much of a bank a recall brings back."""


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


async def ask(bank: str, query: str, hindsight: Hindsight, rules: Rules) -> list[str]:
    """Recall; on a 400, which is an old Hindsight's answer to a long query, once more with half of it.

    Raises:
        HandlingError: as `Hindsight.recall`.
    """
    try:
        return await hindsight.recall(bank, query, rules.recall_budget, MAX_TOKENS)
    except Permanent as refused:
        shorter = halve(query)
        if refused.reason is not DeadLetterReason.REJECTED or not has_word(shorter):
            raise
        return await hindsight.recall(bank, shorter, rules.recall_budget, MAX_TOKENS)
