"""`issue.comment.created`: retain the comment in the bank of the agent that it belongs to."""

from consumer.errors import DeadLetterReason, Permanent, Upstream
from consumer.handlers.context import DeliveryInfo, HandlerContext
from consumer.handlers.forget import forget
from consumer.handlers.lookups import load_issue
from consumer.handlers.results import Done, HandlerResult, Skipped, SkipReason
from consumer.handlers.retain_plan import LoadedComment, needs_issue, plan_retain
from consumer.memory.operation_ids import operation_id
from schemas.events import SNIPPET_UNITS, IssueCommentCreated
from schemas.paperclip import Comment


async def retain(event: IssueCommentCreated, delivery: DeliveryInfo, context: HandlerContext) -> HandlerResult:
    """Retain a comment, or forget it if it is gone. The same comment twice is one document and one operation."""
    # 1. Gates.
    if not context.policy.auto_retain:
        return Skipped(SkipReason.AUTO_RETAIN_OFF)
    if event.payload.comment_id is None:
        return Skipped(SkipReason.NO_COMMENT_ID)
    # 2. The comment.
    loaded = await _load_comment(event, event.payload.comment_id, delivery, context)
    if loaded is None or loaded.comment.deleted_at is not None:
        return await forget(event, delivery, context)
    # 3. Its content, its bank and its metadata.
    issue = None
    if needs_issue(loaded, context.policy):
        issue = await load_issue(event.payload.issue, event.entity_id, context)
    plan = plan_retain(loaded, issue, context.policy)
    if isinstance(plan, Skipped):
        return plan
    # 4. Hindsight.
    operation = operation_id(plan.bank, plan.memory.document_id, plan.memory.content, delivery.repair)
    await context.hindsight.retain(plan.bank, plan.memory, operation)
    return Done(bank=plan.bank)


async def _load_comment(
    event: IssueCommentCreated, comment_id: str, delivery: DeliveryInfo, context: HandlerContext
) -> LoadedComment | None:
    """Load the comment; None if it is gone.

    The comment embedded in a replayed record may be deleted by now, so Paperclip is asked. Without a Paperclip API the
    embedded comment has to do, or the event's snippet, and the operator is warned.

    Raises:
        Permanent: the embedded comment is not the one that the event names, or Paperclip's belongs to another company.
    """
    embedded = event.payload.comment
    matches = embedded is not None and _matches(embedded, event)
    if embedded is not None and matches and not delivery.replayed:
        return _loaded(embedded, event)
    if context.paperclip is not None:
        comment = await context.paperclip.comment(event.entity_id, comment_id)
        if comment is not None and comment.company_id not in (None, event.company_id):
            raise _invalid(f"comment {comment_id} belongs to another company than its event", Upstream.PAPERCLIP)
        return _loaded(comment, event) if comment is not None else None
    if delivery.replayed:
        context.warn("no Paperclip API: retaining a replayed comment as its record has it, even if deleted since")
    if embedded is None:
        return _loaded_snippet(event, comment_id)
    if not matches:
        raise _invalid("payload.comment is not the comment that the event names, or has no body")
    return _loaded(embedded, event)


def _matches(comment: Comment, event: IssueCommentCreated) -> bool:
    return (
        comment.id == event.payload.comment_id
        and comment.issue_id in (None, event.entity_id)
        and comment.company_id in (None, event.company_id)
        and (comment.body is not None or comment.deleted_at is not None)
    )


def _invalid(problem: str, upstream: Upstream | None = None) -> Permanent:
    return Permanent(problem, reason=DeadLetterReason.INVALID, upstream=upstream)


def _loaded(comment: Comment, event: IssueCommentCreated, *, truncated: bool = False) -> LoadedComment:
    payload = event.payload
    return LoadedComment(
        comment, event.company_id, event.entity_id, payload.agent_id, payload.run_id, event.occurred_at, truncated
    )


def _loaded_snippet(event: IssueCommentCreated, comment_id: str) -> LoadedComment:
    """Build the comment from the event alone; Paperclip cuts the snippet."""
    snippet = event.payload.body_snippet or ""
    units = len(snippet.encode("utf-16-le", "surrogatepass")) // 2
    comment = Comment(id=comment_id, author_type=event.actor_type, body=snippet)
    return _loaded(comment, event, truncated=units >= SNIPPET_UNITS)
