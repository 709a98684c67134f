"""Compares the comments that Paperclip has with the documents that Hindsight stores."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from consumer.errors import Permanent
from consumer.hindsight.models import Document
from consumer.memory.attribution import resolve_bank_user
from consumer.memory.banks import company_bank_ids
from consumer.memory.documents import Operation
from consumer.memory.policy import MemoryPolicy
from consumer.paperclip.models import Json, is_forbidden
from consumer.reconcile.expected import ExpectedDocument, expect_document
from consumer.reconcile.findings import (
    AuditedComment,
    BankOperation,
    DocumentOperations,
    Report,
    StoredDocument,
    compare,
    compare_deleted,
)
from consumer.reconcile.issues import active_issues
from consumer.relay.assignee_history import AssigneeCache, IssueHistory
from consumer.relay.concurrency import Progress, map_concurrently
from consumer.relay.event_builder import CREATED, DELETED, event_from_activity, event_id
from consumer.relay.protocols import PaperclipFeed
from schemas.paperclip import Issue
from schemas.timestamps import format_timestamp, parse_timestamp

SETTLE_TIME = 15.0
"""Seconds: younger comments are not compared, their events may be on their way."""


class DocumentStore(Protocol):
    """The part of `HindsightClient` that an audit reads."""

    def documents(self, bank: str) -> AsyncIterator[Document]: ...

    async def document(self, bank: str, document_id: str) -> Document | None: ...

    def operations(
        self,
        bank: str,
        *,
        status: str | None = None,
        type: str | None = None,  # noqa: A002 - Hindsight's word
    ) -> AsyncIterator[Operation]: ...


@dataclass(slots=True)
class _PaperclipState:
    """What was read of Paperclip.

    Attributes:
        too_young: comments that are not compared.
        deleted: comment → its issue, and how it went.
        agents, users: in whose banks documents can be; as dicts, to keep their order.
    """

    issues: dict[str, Json] = field(default_factory=dict)
    comments: dict[str, AuditedComment] = field(default_factory=dict)
    too_young: set[str] = field(default_factory=set)
    deleted: dict[str, tuple[str, str]] = field(default_factory=dict)
    agents: dict[str, None] = field(default_factory=dict)
    users: dict[str | None, None] = field(default_factory=lambda: dict[str | None, None]({None: None}))


@dataclass(slots=True)
class _HindsightState:
    """What was read of Hindsight: documents by id, and those whose metadata says that they are a comment's."""

    banks: list[str]
    documents: defaultdict[str, list[StoredDocument]] = field(default_factory=lambda: defaultdict(list))
    of_comments: dict[str, Document] = field(default_factory=dict)


class Audit:
    """The audit of one company.

    Args:
        dead_letters: reason of each dead letter, by the id of its event.
        now: seconds since the epoch.
        progress: makes the progress bar of a step.
    """

    def __init__(
        self,
        paperclip: PaperclipFeed,
        hindsight: DocumentStore,
        policy: MemoryPolicy,
        dead_letters: Mapping[str, str],
        now: Callable[[], float],
        progress: Callable[[str], Progress],
    ) -> None:
        self._paperclip = paperclip
        self._hindsight = hindsight
        self._policy = policy
        self._dead_letters = dead_letters
        self._now = now
        self._progress = progress

    async def run(self, company: str, since: float) -> tuple[Report, dict[str, Json]]:
        """The report, and the issues that it concerns, by id.

        Args:
            since: seconds since the epoch; older comments are not compared.

        Raises:
            HandlingError: Paperclip or Hindsight cannot be read.
        """
        report, paperclip, started = Report(company), _PaperclipState(), self._now()
        paperclip.agents |= dict.fromkeys(await self._paperclip.agents(company))
        issues = [issue async for issue in active_issues(self._paperclip, company, since)]
        await self._read_issues(issues, since, started, report, paperclip)
        await self._read_deletions(company, since, report, paperclip)
        hindsight = await self._read_documents(company, paperclip)
        if hidden := await self._hidden_issues(company, hindsight.of_comments, paperclip):
            await self._read_issues(hidden, since, started, report, paperclip)
        operations = await self._read_operations(hindsight.banks)
        for comment in sorted(paperclip.comments.values(), key=lambda comment: comment.created):
            documents = hindsight.documents[comment.id] or await self._confirm_missing(comment)
            dead_letter = self._dead_letters.get(event_id(CREATED, comment.id), "")
            comment_operations = operations.get(comment.id, DocumentOperations())
            compare(report, comment, documents, comment_operations, now=self._now(), dead_letter=dead_letter)
        for comment_id, (issue, how) in paperclip.deleted.items():
            compare_deleted(report, comment_id, issue, hindsight.documents[comment_id], how)
        known = paperclip.comments.keys() | paperclip.deleted.keys() | paperclip.too_young
        report.unknown = sorted(
            id_ for id_, document in hindsight.of_comments.items() if id_ not in known and _created(document) >= since
        )
        for id_, document_operations in operations.items():
            if id_ not in paperclip.deleted:
                self._list_operations(report, document_operations, stored=bool(hindsight.documents.get(id_)))
        return report, paperclip.issues

    async def _read_issues(
        self, issues: list[Json], since: float, started: float, report: Report, paperclip: _PaperclipState
    ) -> None:
        async def read(issue: Json) -> None:
            history = IssueHistory(self._paperclip, issue, AssigneeCache(), self._now)
            paperclip.issues[issue["id"]] = issue
            paperclip.users[resolve_bank_user(Issue.model_validate(issue), self._policy)] = None
            if issue["assigneeAgentId"] is not None:
                paperclip.agents[issue["assigneeAgentId"]] = None
            try:
                async for comment in self._paperclip.comments(issue["id"], oldest_first=False):
                    created = parse_timestamp(comment["createdAt"])
                    if created < since:
                        break
                    if comment["deletedAt"] is not None:
                        paperclip.deleted[comment["id"]] = (issue["id"], "deleted")
                    elif created > started - SETTLE_TIME:
                        paperclip.too_young.add(comment["id"])
                    else:
                        await self._read_comment(comment, history, paperclip)
            except Permanent as error:
                report.notes.append(f"issue {issue['id']} could not be read: {error}")

        await map_concurrently(read, issues, self._progress("reading issues"))

    async def _read_comment(self, comment: Json, history: IssueHistory, paperclip: _PaperclipState) -> None:
        """Add an existing comment, and the agents whose banks could hold it."""
        document = expect_document(comment, await history.at(comment["createdAt"]), self._policy)
        for agent in (comment["authorAgentId"], comment["derivedAuthorAgentId"]):
            if agent is not None:
                paperclip.agents[agent] = None
        created = parse_timestamp(comment["createdAt"])
        paperclip.comments[comment["id"]] = AuditedComment(comment["id"], history.current["id"], created, document)

    async def _read_deletions(self, company: str, since: float, report: Report, paperclip: _PaperclipState) -> None:
        """Add the comments that the audit feed names as deleted or cancelled; a cancelled comment leaves no row."""
        try:
            async for row in self._paperclip.audit_feed(company, format_timestamp(since)):
                envelope = event_from_activity(row)
                if envelope is not None and envelope["eventType"] != CREATED:
                    how = "deleted" if envelope["eventType"] == DELETED else "cancelled"
                    paperclip.deleted[envelope["payload"]["commentId"]] = (row["entityId"], how)
        except Permanent as error:
            if not is_forbidden(error):
                raise
            report.notes.append("cancelled comments are not known: the key may not read the audit feed")

    async def _read_documents(self, company: str, paperclip: _PaperclipState) -> _HindsightState:
        banks = dict.fromkeys(
            bank
            for user in paperclip.users
            for bank in company_bank_ids(self._policy, company=company, agents=paperclip.agents, user=user)
        )
        expected_documents = (comment.expected for comment in paperclip.comments.values())
        banks |= dict.fromkeys(
            document.bank for document in expected_documents if isinstance(document, ExpectedDocument)
        )
        hindsight = _HindsightState(list(banks))

        async def read(bank: str) -> None:
            async for document in self._hindsight.documents(bank):
                stored = StoredDocument(bank, document.content_hash, document.updated_at or "")
                if all(other.bank != bank for other in hindsight.documents[document.id]):
                    hindsight.documents[document.id].append(stored)
                metadata = document.document_metadata or {}
                if metadata.get("commentId") == document.id and metadata.get("companyId") == company:
                    hindsight.of_comments[document.id] = document

        await map_concurrently(read, hindsight.banks, self._progress("reading banks"))
        return hindsight

    async def _hidden_issues(
        self, company: str, documents: Mapping[str, Document], paperclip: _PaperclipState
    ) -> list[Json]:
        """Issues that documents name and no list shows: hidden ones, whose comments still exist."""
        named = {str((document.document_metadata or {}).get("issueId")) for document in documents.values()}
        issues = []
        for id_ in sorted(named - paperclip.issues.keys() - {"None"}):
            try:
                issue = await self._paperclip.issue_json(id_)
            except Permanent:
                continue
            if issue is not None and issue["companyId"] == company:
                issues.append(issue)
        return issues

    async def _read_operations(self, banks: Collection[str]) -> dict[str, DocumentOperations]:
        """Unfinished and failed retains, by document."""
        pending = defaultdict[str, list[BankOperation]](list)
        failed = defaultdict[str, list[BankOperation]](list)

        async def read(bank: str) -> None:
            for status, by_document in (("pending", pending), ("processing", pending), ("failed", failed)):
                async for operation in self._hindsight.operations(bank, status=status, type="retain"):
                    if operation.document_id is not None:
                        by_document[operation.document_id].append(BankOperation(bank, operation))

        await map_concurrently(read, banks, self._progress("reading operations"))
        return {
            id_: DocumentOperations(tuple(pending[id_]), tuple(failed[id_])) for id_ in pending.keys() | failed.keys()
        }

    async def _confirm_missing(self, comment: AuditedComment) -> list[StoredDocument]:
        """Look for one document by its id: a list that moves while it is read can hide one."""
        if not isinstance(comment.expected, ExpectedDocument):
            return []
        bank = comment.expected.bank
        document = await self._hindsight.document(bank, comment.id)
        return [] if document is None else [StoredDocument(bank, document.content_hash, document.updated_at or "")]

    def _list_operations(self, report: Report, operations: DocumentOperations, *, stored: bool) -> None:
        if operations.are_stalled(self._now()):
            report.stalled += operations.pending
        elif not stored and not operations.pending:
            report.failed += operations.failed


def _created(document: Document) -> float:
    """When the document's comment was made, as far as the document says; seconds since the epoch."""
    return parse_timestamp(document.event_date or document.created_at or "1970-01-01T00:00:00Z")
