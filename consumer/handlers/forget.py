"""`issue.comment.deleted`, `.cancelled`, and a retain whose comment is gone: remove its document from every bank.

The event of a deletion carries no body and often no author, and attribution can have changed since the retain. So the
document is looked for in every bank that the policy can give an agent of the company. No gate applies: a stored comment
must go even if today's settings would not store it.
"""

from consumer.errors import NotYet, Upstream
from consumer.handlers.context import DeliveryInfo, HandlerContext
from consumer.handlers.lookups import load_issue
from consumer.handlers.results import Done, HandlerResult, Skipped, SkipReason
from consumer.memory.attribution import resolve_bank_user
from consumer.memory.banks import company_bank_ids
from consumer.memory.documents import STALLED_AFTER
from schemas.events import CommentPayload, IssueCommentCancelled, IssueCommentCreated, IssueCommentDeleted
from schemas.timestamps import parse_timestamp

CANCEL_SETTLES_AFTER = 30.0
"""Seconds after which a cancelled retain can no longer store its document, even if a worker had just started it."""


async def forget(
    event: IssueCommentDeleted | IssueCommentCancelled | IssueCommentCreated,
    _delivery: DeliveryInfo,
    context: HandlerContext,
) -> HandlerResult:
    """Forget a comment.

    Raises:
        NotYet: a retain of the comment is unfinished or was cancelled moments ago, and could store it again.
    """
    comment_id = event.payload.comment_id
    if comment_id is None:
        return Skipped(SkipReason.NO_COMMENT_ID)
    policy = context.policy
    agents = await _agents(event.company_id, event.payload, context)
    user = await _user(event.entity_id, event.payload, context)
    banks = company_bank_ids(policy, company=event.company_id, agents=agents, user=user)
    if not banks:
        return Skipped(SkipReason.NO_AGENT if policy.needs_agent else SkipReason.NO_USER)
    unfinished = [bank for bank in banks if not await _forget_in_bank(bank, comment_id, context)]
    if unfinished:
        raise NotYet(f"{len(unfinished)} bank(s) may still store {comment_id}", upstream=Upstream.HINDSIGHT)
    return Done(bank=banks[0] if len(banks) == 1 else None)


async def _agents(company_id: str, payload: CommentPayload, context: HandlerContext) -> list[str]:
    """List the company's agents, and those that the event names, which may have been deleted."""
    if not context.policy.needs_agent:
        return []
    comment, issue = payload.comment, payload.issue
    named = [payload.agent_id]
    if comment is not None:
        named += [comment.author_agent_id, comment.derived_author_agent_id]
    if issue is not None:
        named.append(issue.assignee_agent_id)
    agents = [agent for agent in named if agent is not None]
    if context.paperclip is None:
        context.warn("no Paperclip API: forgetting a deleted comment only in the banks of agents named by its event")
        return agents
    return [*agents, *await context.paperclip.agents(company_id)]


async def _user(issue_id: str, payload: CommentPayload, context: HandlerContext) -> str | None:
    if not context.policy.needs_user:
        return None
    user = resolve_bank_user(await load_issue(payload.issue, issue_id, context), context.policy)
    if user is None:
        context.warn("user of a deleted comment's issue is unknown: forgetting it only in banks without a user")
    return user


async def _forget_in_bank(bank: str, comment_id: str, context: HandlerContext) -> bool:
    """Cancel the comment's retains and delete its document; return whether nothing can store it again.

    A refused cancel means that the retain has finished; its document is deleted now or by the next attempt. A retain
    that is `processing` is left to finish: Hindsight 1.1 would mark it cancelled and still store the document after our
    delete, because its worker checks only between documents. If its worker is gone it never finishes, so it is
    cancelled after an hour. A worker can also start a retain just before our cancel; such a retain is indistinguishable
    from one that never started, so the document counts as forgotten only some time after the cancel.
    """
    now = context.now()
    retains = await context.hindsight.unfinished_retains(bank, comment_id)
    for retain in retains:
        if retain.status == "pending" or _age(retain.created_at, now) > STALLED_AFTER:
            await context.hindsight.cancel(bank, retain.id)
    await context.hindsight.delete_document(bank, comment_id)
    if retains:
        return False
    cancelled = await context.hindsight.cancelled_retains(bank, comment_id)
    return all(_age(retain.updated_at, now) > CANCEL_SETTLES_AFTER for retain in cancelled if retain.updated_at)


def _age(timestamp: str | None, now: float) -> float:
    """Return the seconds since a timestamp of Hindsight; 0 if there is none."""
    return 0.0 if timestamp is None else now - parse_timestamp(timestamp)
