"""`agent.run.started`: recall memories for the run, and publish them for the tools.

A failure of Paperclip or Hindsight does not fail the event: without a good record the tools ask live. Only a publish
that Kafka does not acknowledge is raised.
"""

from typing import NamedTuple

from consumer.errors import HandlingError, Upstream
from consumer.handlers.context import DeliveryInfo, HandlerContext
from consumer.handlers.lookups import embedded_issue, load_issue, recall_with_fallback, resolve_issue_id
from consumer.handlers.results import Degraded, Done, HandlerResult, Skipped, SkipReason
from consumer.memory.banks import choose_bank, derive_bank_id
from consumer.memory.recall_query import build_query, is_searchable
from consumer.memory.sanitize import is_blank
from schemas.events import AgentRunStarted, RunPayload
from schemas.paperclip import Issue, Run, WakeComment
from schemas.recalls import RecallRecord, RecallStatus
from schemas.timestamps import format_timestamp


class _RecallQuery(NamedTuple):
    """A query for an issue, and the bank that it goes to."""

    bank: str
    user: str | None
    text: str


async def recall(event: AgentRunStarted, delivery: DeliveryInfo, context: HandlerContext) -> HandlerResult:
    """Recall memories for a run that has started.

    Raises:
        UpstreamDown: Kafka does not acknowledge the record.
    """
    run, policy = event.payload, context.policy
    # 1. Gates.
    if run.agent_id is None:
        return Skipped(SkipReason.NO_AGENT)
    if not policy.is_enabled(run.agent_id):
        return Skipped(SkipReason.AGENT_NOT_ENABLED)
    if not run.issue_id:
        return Skipped(SkipReason.NO_ISSUE)
    if context.now() - delivery.timestamp > policy.recall_deadline:
        return Skipped(SkipReason.TOO_LATE)  # the run has moved on
    # The bank of the record if Paperclip does not answer: never one that is wider than the user's own.
    bank = None
    if not policy.needs_user:
        bank = derive_bank_id(policy, company=event.company_id, agent=run.agent_id, user=None)
    issue_id, user, text, memories = None, None, "", list[str]()
    failure: HandlingError | None = None
    try:
        # 2. The query.
        issue_id = await resolve_issue_id(run.issue_id, event.company_id, context)
        query = await _query(event.company_id, run, run.agent_id, issue_id, context)
        if isinstance(query, Skipped):
            return query
        bank, user, text = query
        # 3. The recall.
        memories = await recall_with_fallback(context.hindsight, bank, text, policy)
    except HandlingError as error:
        failure = error  # not fatal, see above
    # 4. The record.
    if issue_id is not None:
        await context.recalls.publish(
            RecallRecord(
                run_id=run.run_id,
                company_id=event.company_id,
                agent_id=run.agent_id,
                issue_id=issue_id,
                bank_id=bank,
                user_id=user,
                query=text,
                status=_status(failure, memories),
                memories=memories,
                recalled_at=format_timestamp(context.now()),
            )
        )
    return Done(bank) if failure is None else Degraded(failure.upstream or Upstream.HINDSIGHT, str(failure), bank)


async def _query(
    company: str, run: RunPayload, agent: str, issue_id: str | None, context: HandlerContext
) -> _RecallQuery | Skipped:
    if issue_id is None:
        return Skipped(SkipReason.NO_ISSUE)
    issue, comments = await _issue_and_comments(run, issue_id, context)
    if issue is None or (is_blank(issue.title) and is_blank(issue.description)):
        return Skipped(SkipReason.BLANK_ISSUE)
    text = build_query(issue.title, issue.description, comments)
    if not is_searchable(text):
        return Skipped(SkipReason.BLANK_QUERY)
    choice = choose_bank(context.policy, company=company, agent=agent, issue=issue)
    return _RecallQuery(*choice, text) if choice is not None else Skipped(SkipReason.NO_USER)


async def _issue_and_comments(
    run: RunPayload, issue_id: str, context: HandlerContext
) -> tuple[Issue | None, list[WakeComment]]:
    """Load the issue and the comments that woke the run, with as few requests as possible.

    What woke the run includes the issue's title and description; its user is only in the issue itself. Without a
    Paperclip API, an event that carries neither run nor issue gives no issue.
    """
    whole_run = await _run(run, context)
    wake = whole_run.wake if whole_run is not None else None
    if wake is not None and wake.issue is not None and wake.issue.id not in (None, issue_id):
        wake = None  # of another issue, which may have another user, whose memories are not for this run
    comments = wake.comments if wake is not None else []
    issue = embedded_issue(run.issue, issue_id)
    if issue is not None:
        return issue, comments
    wake_issue = wake.issue if wake is not None else None
    if wake_issue is not None and not context.policy.needs_user:
        return wake_issue, comments
    return await load_issue(None, issue_id, context) or wake_issue, comments


async def _run(run: RunPayload, context: HandlerContext) -> Run | None:
    if run.run is not None and run.run.id == run.run_id:
        return run.run
    if context.paperclip is None:
        if run.issue is None:
            context.warn("no Paperclip API, and the event carries neither run nor issue: skipping the recall")
        return None
    return await context.paperclip.run(run.run_id)


def _status(failure: HandlingError | None, memories: list[str]) -> RecallStatus:
    if failure is not None:
        return RecallStatus.FAILED
    return RecallStatus.RECALLED if memories else RecallStatus.EMPTY
