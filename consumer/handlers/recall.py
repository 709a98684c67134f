"""`agent.run.started`: recall what matters to the run, and publish it for the tools.

Nothing that Paperclip or Hindsight does makes this event fail: the tools ask live when there is no good record. Only a
publish that Kafka does not take is raised.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from consumer.errors import HandlingError, Upstream
from consumer.handlers.context import Delivery, Needs
from consumer.handlers.lookups import ask, bank_user, issue_of, own_issue
from consumer.handlers.results import Done, FailReason, Outcome, Skipped, SkipReason
from consumer.memory.banks import bank_of
from consumer.memory.recall_query import has_word, query_of
from consumer.memory.sanitize import blank
from schemas.events import AgentRunStarted, RunPayload
from schemas.objects import Issue, Run, WakeComment
from schemas.recalls import RecallRecord, RecallStatus


class _Question(NamedTuple):
    """What is asked, of which bank."""

    bank: str
    user: str | None
    query: str


async def recall(event: AgentRunStarted, delivery: Delivery, needs: Needs) -> Outcome:
    """Recall for a run that has started.

    Raises:
        UpstreamDown: Kafka does not take the record.
    """
    run, rules = event.payload, needs.rules
    # 1. Gates.
    if run.agent_id is None:
        return Skipped(SkipReason.NO_AGENT)
    if not rules.enabled(run.agent_id):
        return Skipped(SkipReason.AGENT_NOT_ENABLED)
    if run.issue_id is None:
        return Skipped(SkipReason.NO_ISSUE)
    if needs.now() - delivery.timestamp > rules.recall_deadline:
        return Skipped(SkipReason.TOO_LATE)  # the run has moved on
    # What a record can say when Paperclip does not answer: never a wider bank than the user's own.
    bank = None if rules.needs_user else bank_of(rules, company=event.company_id, agent=run.agent_id, user=None)
    user, query, memories = None, "", list[str]()
    failure: HandlingError | None = None
    try:
        # 2. The query.
        question = await _question(event.company_id, run, run.agent_id, run.issue_id, needs)
        if isinstance(question, Skipped):
            return question
        bank, user, query = question
        # 3. The recall.
        memories = await ask(bank, query, needs.hindsight, rules)
    except HandlingError as error:
        failure = error  # 5. Not fatal.
    # 4. The record.
    await needs.recalls.publish(
        RecallRecord(
            run_id=run.run_id,
            company_id=event.company_id,
            agent_id=run.agent_id,
            issue_id=run.issue_id,
            bank_id=bank,
            user_id=user,
            query=query,
            status=_status(failure, memories),
            memories=memories,
            recalled_at=datetime.fromtimestamp(needs.now(), UTC).isoformat(timespec="milliseconds"),
        )
    )
    return Done(bank=bank) if failure is None else Done(_failed(failure), str(failure), bank)


async def _question(company: str, run: RunPayload, agent: str, issue_id: str, needs: Needs) -> _Question | Skipped:
    rules = needs.rules
    issue, comments = await _read(run, issue_id, needs)
    if issue is None or (blank(issue.title) and blank(issue.description)):
        return Skipped(SkipReason.BLANK_ISSUE)
    query = query_of(issue.title, issue.description, comments)
    if not has_word(query):
        return Skipped(SkipReason.BLANK_QUERY)
    user = bank_user(issue, rules)
    bank = bank_of(rules, company=company, agent=agent, user=user)
    if bank is None or (rules.needs_user and rules.user_required and user is None):
        return Skipped(SkipReason.NO_USER)
    return _Question(bank, user, query)


async def _read(run: RunPayload, issue_id: str, needs: Needs) -> tuple[Issue | None, list[WakeComment]]:
    """The issue and the comments that woke the run, with as few requests as will do.

    The run's own wake has title and description; only the issue itself knows its user. Without a Paperclip API an event
    that carries neither gives no issue: there is nothing to ask about.
    """
    whole = await _run(run, needs)
    wake = whole.wake if whole is not None else None
    if wake is not None and wake.issue is not None and wake.issue.id not in (None, issue_id):
        wake = None  # another issue's: it may have another user, whose memories are not this run's
    comments = wake.comments if wake is not None else []
    issue = own_issue(run.issue, issue_id)
    if issue is not None:
        return issue, comments
    woken_for = wake.issue if wake is not None else None
    if woken_for is not None and not needs.rules.needs_user:
        return woken_for, comments
    return await issue_of(None, issue_id, needs) or woken_for, comments


async def _run(run: RunPayload, needs: Needs) -> Run | None:
    if run.run is not None and run.run.id == run.run_id:
        return run.run
    if needs.paperclip is None:
        if run.issue is None:
            needs.warn("no Paperclip API, and the event carries neither run nor issue: nothing to recall for")
        return None
    return await needs.paperclip.run(run.run_id)


def _failed(failure: HandlingError) -> FailReason:
    return FailReason.PAPERCLIP if failure.upstream is Upstream.PAPERCLIP else FailReason.HINDSIGHT


def _status(failure: HandlingError | None, memories: list[str]) -> RecallStatus:
    if failure is not None:
        return RecallStatus.FAILED
    return RecallStatus.RECALLED if memories else RecallStatus.EMPTY
