"""`issue.comment.deleted`, `.cancelled`, and a retain whose comment is gone: take its document out of every bank.

The body and often the author are gone, and attribution can have changed since: so every bank that the rules give for
any agent of the company is looked at. No gate applies: what was stored must go, whatever the settings say today.
"""

from datetime import UTC, datetime

from consumer.errors import NotYet, Upstream
from consumer.handlers.context import Delivery, Needs
from consumer.handlers.lookups import bank_user, issue_of
from consumer.handlers.results import Done, Outcome, Skipped, SkipReason
from consumer.memory.banks import banks_of_company
from schemas.events import CommentPayload, IssueCommentCancelled, IssueCommentCreated, IssueCommentDeleted

ABANDONED_AFTER = 3600.0
"""Seconds after which a retain that is still `processing` has lost its worker: nothing else ends it."""

SETTLED_AFTER = 30.0
"""Seconds after which a cancelled retain stores its document no more, even if it was taken up just before."""


async def forget(
    event: IssueCommentDeleted | IssueCommentCancelled | IssueCommentCreated, _delivery: Delivery, needs: Needs
) -> Outcome:
    """Forget a comment.

    Raises:
        NotYet: a retain of it is unfinished, or was cancelled just now, and could bring the document back.
    """
    comment_id = event.payload.comment_id
    if comment_id is None:
        return Skipped(SkipReason.NO_COMMENT_ID)
    agents = await _agents(event.company_id, event.payload, needs)
    user = await _user(event.entity_id, event.payload, needs)
    banks = banks_of_company(needs.rules, company=event.company_id, agents=agents, user=user)
    if not banks:
        return Skipped(SkipReason.NO_AGENT if needs.rules.needs_agent else SkipReason.NO_USER)
    unfinished = [bank for bank in banks if not await _gone(bank, comment_id, needs)]
    if unfinished:
        raise NotYet(f"{len(unfinished)} bank(s) may still store {comment_id}", upstream=Upstream.HINDSIGHT)
    return Done(bank=banks[0] if len(banks) == 1 else None)


async def _agents(company_id: str, payload: CommentPayload, needs: Needs) -> list[str]:
    """All agents of the company, and those that the event names: they may be deleted."""
    if not needs.rules.needs_agent:
        return []
    comment, issue = payload.comment, payload.issue
    named = [payload.agent_id]
    if comment is not None:
        named += [comment.author_agent_id, comment.derived_author_agent_id]
    if issue is not None:
        named.append(issue.assignee_agent_id)
    agents = [agent for agent in named if agent is not None]
    if needs.paperclip is None:
        needs.warn("no Paperclip API: a deleted comment is forgotten only in the banks of agents that its event names")
        return agents
    return [*agents, *await needs.paperclip.agents(company_id)]


async def _user(issue_id: str, payload: CommentPayload, needs: Needs) -> str | None:
    if not needs.rules.needs_user:
        return None
    user = bank_user(await issue_of(payload.issue, issue_id, needs), needs.rules)
    if user is None:
        needs.warn("the user of a deleted comment's issue is not known: forgotten only in banks without a user")
    return user


async def _gone(bank: str, comment_id: str, needs: Needs) -> bool:
    """Cancel what would store the document, delete it, and say whether nothing can bring it back.

    A cancel that is refused came too late: that retain has ended, and its document falls to the delete, or to the next
    look. One that is `processing` is left to end: Hindsight 1.1 would call it cancelled and store the document all the
    same, after our delete (seen: its worker looks only between documents). Without a worker it never ends, so it is
    cancelled after an hour. One that was taken up between look and cancel is such a one, too, and nothing tells it from
    those that never began: so what was cancelled a moment ago is looked after for a while.
    """
    retains = await needs.hindsight.unfinished_retains(bank, comment_id)
    for retain in retains:
        if retain.status == "pending" or _age(retain.created_at, needs.now()) > ABANDONED_AFTER:
            await needs.hindsight.cancel(bank, retain.id)
    await needs.hindsight.delete_document(bank, comment_id)
    if retains:
        return False
    cancelled = await needs.hindsight.cancelled_retains(bank, comment_id)
    return all(_age(retain.updated_at, needs.now()) > SETTLED_AFTER for retain in cancelled if retain.updated_at)


def _age(moment: str | None, now: float) -> float:
    """Seconds since a time of Hindsight's; 0 if it is not known."""
    if moment is None:
        return 0.0
    then = datetime.fromisoformat(moment)
    return now - then.replace(tzinfo=then.tzinfo or UTC).timestamp()
