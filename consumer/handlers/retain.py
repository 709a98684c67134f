"""`issue.comment.created`: retain the comment in the bank of the agent that it belongs to."""

from typing import NamedTuple

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.handlers.context import Delivery, Memory, Needs
from consumer.handlers.forget import forget
from consumer.handlers.lookups import bank_user, issue_of
from consumer.handlers.results import Done, Outcome, Skipped, SkipReason
from consumer.memory.attribution import author_of
from consumer.memory.banks import bank_of
from consumer.memory.operation_ids import operation_id
from consumer.memory.policy import Rules
from consumer.memory.sanitize import blank, clean, mend
from schemas.events import IssueCommentCreated
from schemas.objects import Comment

SNIPPET_UNITS = 120
"""Where Paperclip cuts `bodySnippet`, in UTF-16 code units."""


class _Said(NamedTuple):
    """The comment, and whether only the start of its body is known."""

    comment: Comment
    truncated: bool = False


class _Place(NamedTuple):
    """Where a memory goes, and whose it is."""

    bank: str
    agent: str
    user: str | None


async def retain(event: IssueCommentCreated, delivery: Delivery, needs: Needs) -> Outcome:
    """Retain a comment, or forget it if it is gone. The same comment twice is one document and one operation."""
    # 1. Gate.
    if not needs.rules.auto_retain:
        return Skipped(SkipReason.AUTO_RETAIN_OFF)
    # 2. The comment.
    if event.payload.comment_id is None:
        return Skipped(SkipReason.NO_COMMENT_ID)
    said = await _said(event, event.payload.comment_id, delivery, needs)
    if said is None or said.comment.deleted_at is not None:
        return await forget(event, delivery, needs)
    # 3. and 4. What may be retained of it.
    content = _content(said.comment, needs.rules)
    if isinstance(content, Skipped):
        return content
    # 5. The bank.
    place = await _place(event, said.comment, needs)
    if isinstance(place, Skipped):
        return place
    # 6. Hindsight.
    memory = Memory(
        document_id=event.payload.comment_id,
        content=content,
        timestamp=said.comment.created_at or event.occurred_at,
        metadata=_metadata(event, said, place),
    )
    operation = operation_id(place.bank, memory.document_id, content, delivery.repair)
    await needs.hindsight.retain(place.bank, memory, operation)
    return Done(bank=place.bank)


async def _said(event: IssueCommentCreated, comment_id: str, delivery: Delivery, needs: Needs) -> _Said | None:
    """The comment; None if it is gone.

    A replayed record's own copy can be of a comment deleted since, so Paperclip is asked. Only where no Paperclip API
    is configured must the copy do, or the event's snippet, and the operator is told.

    Raises:
        Permanent: the event carries another comment than it names, or Paperclip's is another company's.
    """
    carried = event.payload.comment
    own = carried if carried is not None and _is_own(carried, event) else None
    if own is not None and not delivery.replayed:
        return _Said(own)
    if needs.paperclip is not None:
        found = await needs.paperclip.comment(event.entity_id, comment_id)
        if found is not None and found.company_id not in (None, event.company_id):
            raise _invalid(f"comment {comment_id} is of another company than its event", Upstream.PAPERCLIP)
        return _Said(found) if found is not None else None
    if delivery.replayed:
        needs.warn("no Paperclip API: a replayed comment is retained as its record has it, even if deleted since")
    if carried is None:
        return _snippet(event, comment_id)
    if own is None:
        raise _invalid("payload.comment is not the comment that the event names, or has no body")
    return _Said(own)


def _is_own(comment: Comment, event: IssueCommentCreated) -> bool:
    return (
        comment.id == event.payload.comment_id
        and comment.issue_id in (None, event.entity_id)
        and comment.company_id in (None, event.company_id)
        and (comment.body is not None or comment.deleted_at is not None)
    )


def _invalid(problem: str, upstream: Upstream | None = None) -> Permanent:
    return Permanent(problem, reason=DeadLetterReason.INVALID, upstream=upstream)


def _snippet(event: IssueCommentCreated, comment_id: str) -> _Said:
    """The comment as far as the event itself knows it."""
    snippet = event.payload.body_snippet or ""
    units = len(snippet.encode("utf-16-le", "surrogatepass")) // 2
    return _Said(Comment(id=comment_id, author_type=event.actor_type, body=snippet), truncated=units >= SNIPPET_UNITS)


def _content(comment: Comment, rules: Rules) -> str | Skipped:
    by_system = comment.author_type == "system"
    notice = comment.presentation is not None and comment.presentation.kind == "system_notice"
    if (by_system or notice) and not rules.retain_system_comments:
        return Skipped(SkipReason.SYSTEM_COMMENT)
    if comment.source_trust is not None and comment.source_trust.disposition == "quarantined":
        return Skipped(SkipReason.QUARANTINED)
    content = clean(comment.body or "")
    return Skipped(SkipReason.BLANK_COMMENT) if blank(content) else content


async def _place(event: IssueCommentCreated, comment: Comment, needs: Needs) -> _Place | Skipped:
    """The issue is looked up only for its assignee, where the comment has no author agent, or for its user."""
    payload, rules = event.payload, needs.rules
    agent, issue = author_of(comment, payload.agent_id), None
    if agent is None:
        issue = await issue_of(payload.issue, event.entity_id, needs)
        agent = issue.assignee_agent_id if issue is not None else None
    if agent is None:
        return Skipped(SkipReason.NO_AGENT)
    if not rules.enabled(agent):
        return Skipped(SkipReason.AGENT_NOT_ENABLED)
    if rules.needs_user and issue is None:
        issue = await issue_of(payload.issue, event.entity_id, needs)
    user = bank_user(issue, rules)
    bank = bank_of(rules, company=event.company_id, agent=agent, user=user)
    if bank is None or (rules.needs_user and rules.user_required and user is None):
        return Skipped(SkipReason.NO_USER)
    return _Place(bank, agent, user)


def _metadata(event: IssueCommentCreated, said: _Said, place: _Place) -> dict[str, str]:
    """Strings only: Hindsight answers 422 to null. What is not known is left out."""
    comment = said.comment
    known = {
        "agentId": place.agent,
        "companyId": event.company_id,
        "issueId": event.entity_id,
        "commentId": comment.id,
        "runId": comment.created_by_run_id or comment.derived_created_by_run_id or event.payload.run_id,
        "authorType": comment.author_type,
        "userId": place.user,
        "truncated": "true" if said.truncated else None,
    }
    return {name: mend(value) for name, value in known.items() if value}
