"""Lookups that handlers and tools share: the issue of an event, and the recall itself."""

from consumer.errors import DeadLetterReason, Permanent
from consumer.handlers.context import HandlerContext, Hindsight
from consumer.memory.policy import MemoryPolicy
from consumer.memory.recall_query import first_half, is_searchable
from schemas.paperclip import Issue, is_uuid

MAX_TOKENS = 1024
"""Upper limit of what one recall returns."""


def embedded_issue(issue: Issue | None, issue_id: str) -> Issue | None:
    """Return the issue embedded in an event, if it is the one that the event names."""
    return issue if issue is not None and issue.id == issue_id else None


async def load_issue(embedded: Issue | None, issue_id: str, context: HandlerContext) -> Issue | None:
    """Return the embedded issue, else Paperclip's; None if it is gone or no Paperclip API is configured."""
    issue = embedded_issue(embedded, issue_id)
    if issue is None and context.paperclip is not None:
        issue = await context.paperclip.issue(issue_id)
    return issue


async def resolve_issue_id(reference: str, company_id: str, context: HandlerContext) -> str | None:
    """Return the id of the company's issue that a run refers to, by id or by identifier; None if there is none.

    Paperclip copies the reference from the wake-up without a check, so it can be any text.
    """
    if is_uuid(reference):
        return reference.lower()
    if context.paperclip is None:
        return None
    issue = await context.paperclip.issue_by_identifier(reference)
    return issue.id if issue is not None and issue.company_id in (None, company_id) else None


async def recall_with_fallback(hindsight: Hindsight, bank: str, query: str, policy: MemoryPolicy) -> list[str]:
    """Recall; if an old Hindsight rejects the query as too long (400), recall once more with its first half.

    Raises:
        HandlingError: as `Hindsight.recall`.
    """
    try:
        return await hindsight.recall(bank, query, policy.recall_budget, MAX_TOKENS)
    except Permanent as error:
        shorter = first_half(query)
        if error.reason is not DeadLetterReason.REJECTED or not is_searchable(shorter):
            raise
        return await hindsight.recall(bank, shorter, policy.recall_budget, MAX_TOKENS)
