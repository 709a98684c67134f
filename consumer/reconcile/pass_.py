"""Compares the comments that Paperclip has with the documents that Hindsight holds."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from consumer.errors import Permanent
from consumer.hindsight.client import HindsightClient
from consumer.hindsight.models import Document
from consumer.memory.attribution import resolve_bank_user
from consumer.memory.banks import company_bank_ids
from consumer.memory.documents import Operation
from consumer.memory.policy import MemoryPolicy
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import is_forbidden
from consumer.reconcile.backfill import issues_of
from consumer.reconcile.expected import Place, expected
from consumer.reconcile.findings import HUNG_AFTER, Held, Report, Subject, Work, judge, judge_gone
from consumer.relay.assignee_history import Assignees, IssueThen
from consumer.relay.event_builder import CREATED, DELETED, Json, event_id, of_activity
from consumer.relay.times import instant, iso
from consumer.relay.work import Progress, each_of
from schemas.paperclip import Issue

SETTLING = 15.0
"""Seconds: comments made later are not judged, they may be on their way."""


Where = tuple[str, Operation]


@dataclass(slots=True)
class _Seen:
    """What was read of Paperclip. `gone`: comment → its issue, and how it went."""

    issues: dict[str, Json] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    gone: dict[str, tuple[str, str]] = field(default_factory=dict)
    agents: dict[str, None] = field(default_factory=dict)
    users: dict[str | None, None] = field(default_factory=lambda: dict[str | None, None]({None: None}))


class Audit:
    """The audit of one company.

    Args:
        letters: reason of each dead letter, by the id of its event.
        now: seconds since the epoch.
        progress: told what is read, and how much of it is done.
    """

    def __init__(
        self,
        paperclip: PaperclipClient,
        hindsight: HindsightClient,
        rules: MemoryPolicy,
        letters: Mapping[str, str],
        now: Callable[[], float],
        progress: Callable[[str], Progress],
    ) -> None:
        self._paperclip = paperclip
        self._hindsight = hindsight
        self._rules = rules
        self._letters = letters
        self._now = now
        self._progress = progress

    async def run(self, company: str, since: float) -> tuple[Report, dict[str, Json]]:
        """What there is to repair, and the issues that it concerns, by id.

        Args:
            since: seconds since the epoch; only comments made then or later are judged.

        Raises:
            HandlingError: Paperclip or Hindsight cannot be asked.
        """
        report, seen, began = Report(company), _Seen(), self._now()
        seen.agents |= dict.fromkeys(await self._paperclip.agents(company))
        issues = [each async for each in issues_of(self._paperclip, company, since)]
        await self._read(issues, since, began, report, seen)
        await self._read_gone(company, since, report, seen)
        banks, held, others = await self._held(company, seen)
        if hidden := await self._hidden(company, others, seen):
            await self._read(hidden, since, began, report, seen)
        operations = await self._operations(banks)
        for subject in sorted(seen.subjects.values(), key=lambda each: each.created):
            work = operations.get(subject.comment, Work())
            documents = held[subject.comment] or await self._confirm(subject)
            letter = self._letters.get(event_id(CREATED, subject.comment), "")
            judge(report, subject, documents, work, hung=self._hangs(work), letter=letter)
        for comment, (issue, how) in seen.gone.items():
            judge_gone(report, comment, issue, held[comment], how)
        known = seen.subjects.keys() | seen.gone.keys() | seen.young
        report.unknown = sorted(id_ for id_, each in others.items() if id_ not in known and _made(each) >= since)
        self._name_operations(report, {id_: each for id_, each in operations.items() if id_ not in seen.gone}, held)
        return report, seen.issues

    async def _read(self, issues: list[Json], since: float, began: float, report: Report, seen: _Seen) -> None:
        async def read(issue: Json) -> None:
            then = IssueThen(self._paperclip, issue, Assignees(), self._now)
            seen.issues[issue["id"]] = issue
            seen.users[resolve_bank_user(Issue.model_validate(issue), self._rules)] = None
            if issue["assigneeAgentId"] is not None:
                seen.agents[issue["assigneeAgentId"]] = None
            try:
                async for comment in self._paperclip.comments(issue["id"], oldest_first=False):
                    made = instant(comment["createdAt"])
                    if made < since:
                        break
                    if comment["deletedAt"] is not None:
                        seen.gone[comment["id"]] = (issue["id"], "deleted")
                    elif made > began - SETTLING:
                        seen.young.add(comment["id"])
                    else:
                        await self._subject(comment, then, seen)
            except Permanent as error:
                report.notes.append(f"issue {issue['id']} could not be read: {error}")

        await each_of(issues, read, self._progress("reading issues"))

    async def _subject(self, comment: Json, issue: IssueThen, seen: _Seen) -> None:
        """Note a living comment, and the agents whose banks it could be in."""
        place = expected(comment, await issue.at(comment["createdAt"]), self._rules)
        for agent in (comment["authorAgentId"], comment["derivedAuthorAgentId"]):
            if agent is not None:
                seen.agents[agent] = None
        made = instant(comment["createdAt"])
        seen.subjects[comment["id"]] = Subject(comment["id"], issue.now["id"], made, place)

    async def _read_gone(self, company: str, since: float, report: Report, seen: _Seen) -> None:
        """What the audit feed names as deleted or cancelled; a cancelled comment leaves no row behind."""
        try:
            async for row in self._paperclip.audit_feed(company, iso(since)):
                envelope = of_activity(row)
                if envelope is not None and envelope["eventType"] != CREATED:
                    how = "deleted" if envelope["eventType"] == DELETED else "cancelled"
                    seen.gone[envelope["payload"]["commentId"]] = (row["entityId"], how)
        except Permanent as error:
            if not is_forbidden(error):
                raise
            report.notes.append("cancelled comments could not be looked for: the key may not read the audit feed")

    async def _held(
        self, company: str, seen: _Seen
    ) -> tuple[list[str], defaultdict[str, list[Held]], dict[str, Document]]:
        """The company's banks; the documents in them by id; and those that carry their own id as a comment's."""
        banks = dict.fromkeys(
            bank
            for user in seen.users
            for bank in company_bank_ids(self._rules, company=company, agents=seen.agents, user=user)
        )
        banks |= dict.fromkeys(each.place.bank for each in seen.subjects.values() if isinstance(each.place, Place))
        held, comments = defaultdict[str, list[Held]](list), dict[str, Document]()

        async def read(bank: str) -> None:
            async for document in self._hindsight.documents(bank):
                entry = Held(bank, document.content_hash, document.updated_at or "")
                if all(each.bank != bank for each in held[document.id]):
                    held[document.id].append(entry)
                about = document.document_metadata or {}
                if about.get("commentId") == document.id and about.get("companyId") == company:
                    comments[document.id] = document

        await each_of(list(banks), read, self._progress("reading banks"))
        return list(banks), held, comments

    async def _hidden(self, company: str, documents: Mapping[str, Document], seen: _Seen) -> list[Json]:
        """Issues that documents name and no list shows: hidden ones, whose comments live all the same."""
        named = {str((each.document_metadata or {}).get("issueId")) for each in documents.values()}
        found = []
        for id_ in sorted(named - seen.issues.keys() - {"None"}):
            try:
                issue = await self._paperclip.issue_json(id_)
            except Permanent:
                continue
            if issue is not None and issue["companyId"] == company:
                found.append(issue)
        return found

    async def _operations(self, banks: Collection[str]) -> dict[str, Work]:
        """Retains that are not over or failed, by document."""
        pending, failed = defaultdict[str, list[Where]](list), defaultdict[str, list[Where]](list)

        async def read(bank: str) -> None:
            for status, kept in (("pending", pending), ("processing", pending), ("failed", failed)):
                async for operation in self._hindsight.operations(bank, status=status, type="retain"):
                    if operation.document_id is not None:
                        kept[operation.document_id].append((bank, operation))

        await each_of(list(banks), read, self._progress("reading operations"))
        return {id_: Work(tuple(pending[id_]), tuple(failed[id_])) for id_ in pending.keys() | failed.keys()}

    async def _confirm(self, subject: Subject) -> list[Held]:
        """Look for one document by its id: a list that moves while it is read can hide one."""
        if not isinstance(subject.place, Place):
            return []
        document = await self._hindsight.document(subject.place.bank, subject.comment)
        return [] if document is None else [Held(subject.place.bank, document.content_hash, document.updated_at or "")]

    def _hangs(self, work: Work) -> bool:
        now = self._now()
        return bool(work.pending) and all(
            operation.created_at is not None and now - instant(operation.created_at) > HUNG_AFTER
            for _, operation in work.pending
        )

    def _name_operations(self, report: Report, operations: Mapping[str, Work], held: Mapping[str, list[Held]]) -> None:
        for id_, work in operations.items():
            if self._hangs(work):
                report.hung += work.pending
            elif not held.get(id_) and not work.pending:
                report.failed += work.failed


def _made(document: Document) -> float:
    """When the comment was made, as far as its document tells; seconds since the epoch."""
    return instant(document.event_date or document.created_at or "1970-01-01T00:00:00Z")
