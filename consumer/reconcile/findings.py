"""What an audit finds, as data: compares the expected documents with the stored ones. Pure."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from consumer.handlers.results import SkipReason
from consumer.memory.documents import STALLED_AFTER, Operation
from consumer.reconcile.expected import ExpectedDocument
from schemas.timestamps import parse_timestamp


class Kind(StrEnum):
    """A fault of a comment's document (closed: a key of the JSON report)."""

    MISSING = "missing"  # no bank holds it
    STALE = "stale"  # its text differs from the comment's
    DUPLICATE = "duplicate"  # more than one bank holds it
    ORPHANED = "orphaned"  # its comment was deleted or cancelled


@dataclass(frozen=True, slots=True)
class AuditedComment:
    """A comment that Paperclip has.

    Attributes:
        created: seconds since the epoch.
        expected: the document that the policy stores, or why it stores none.
    """

    id: str
    issue: str
    created: float
    expected: ExpectedDocument | SkipReason


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in a bank. `updated`: when Hindsight says that it was written last."""

    bank: str
    text_hash: str | None
    updated: str


@dataclass(frozen=True, slots=True)
class BankOperation:
    """An operation of Hindsight, and its bank."""

    bank: str
    operation: Operation


@dataclass(frozen=True, slots=True)
class DocumentOperations:
    """Hindsight's unfinished and failed retains of a document, newest first."""

    pending: tuple[BankOperation, ...] = ()
    failed: tuple[BankOperation, ...] = ()

    def are_stalled(self, now: float) -> bool:
        """Whether the pending retains have lost their worker. `now`: seconds since the epoch."""
        return bool(self.pending) and all(
            pending.operation.created_at is not None
            and now - parse_timestamp(pending.operation.created_at) > STALLED_AFTER
            for pending in self.pending
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault to repair.

    Attributes:
        bank: the one that should hold the document; None: no bank should.
        wrong_banks: those that hold it and should not.
        reason: why, where that is known; "" if not.
    """

    kind: Kind
    comment: str
    issue: str
    bank: str | None
    wrong_banks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Report:
    """The result of the audit of one company.

    Attributes:
        comments: existing ones that were compared.
        stored: those that a bank holds with their text.
        elsewhere: stored ones in another bank than the policy would choose today: their issue or author changed since.
        waiting: not stored yet, because Hindsight still works on them.
        skipped: not stored, by the policy's reason.
        unknown: documents with the id of a comment that Paperclip does not show. They are never touched.
        failed, stalled: Hindsight's operations that did not finish, and whose document is not stored.
        notes: what could not be read, and why.
    """

    company: str
    comments: int = 0
    stored: int = 0
    elsewhere: int = 0
    waiting: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failed: list[BankOperation] = field(default_factory=list)
    stalled: list[BankOperation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether there is nothing to repair. Operations do not count: where a comment needs one, it is a finding."""
        return not self.findings

    def of_kind(self, kind: Kind) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind is kind]


def compare(
    report: Report,
    comment: AuditedComment,
    documents: Collection[StoredDocument],
    operations: DocumentOperations,
    *,
    now: float,
    dead_letter: str,
) -> None:
    """Add an existing comment and its documents to the report.

    Args:
        now: seconds since the epoch.
        dead_letter: the reason of its dead letter; "" for none.
    """
    report.comments += 1
    expected = comment.expected
    if isinstance(expected, SkipReason):
        report.skipped[expected] += 1
        return
    if not documents:
        stalled = operations.are_stalled(now)
        if operations.pending and not stalled:
            report.waiting += 1
        else:
            reason = _why_missing(operations, dead_letter)
            report.findings.append(Finding(Kind.MISSING, comment.id, comment.issue, expected.bank, reason=reason))
        return
    in_expected_bank = (document for document in documents if document.bank == expected.bank)
    kept = next(in_expected_bank, None) or max(documents, key=lambda document: document.updated)
    if len(documents) > 1:
        wrong_banks = tuple(document.bank for document in documents if document.bank != kept.bank)
        as_expected = kept.bank == expected.bank
        reason = "its author or its issue's assignee changed" if as_expected else "the policy would choose none of them"
        report.findings.append(Finding(Kind.DUPLICATE, comment.id, comment.issue, kept.bank, wrong_banks, reason))
    if kept.text_hash not in (None, expected.text_hash):
        reason = "the text differs from the comment's"
        report.findings.append(Finding(Kind.STALE, comment.id, comment.issue, kept.bank, reason=reason))
        return
    report.stored += 1
    report.elsewhere += kept.bank != expected.bank


def compare_deleted(report: Report, comment: str, issue: str, documents: Collection[StoredDocument], how: str) -> None:
    """Add a finding if a bank still holds the document of a comment that Paperclip names as deleted or cancelled."""
    if documents:
        banks = tuple(document.bank for document in documents)
        report.findings.append(Finding(Kind.ORPHANED, comment, issue, None, banks, f"{how} in Paperclip"))


def first_line(error: str | None) -> str:
    """The first line of an operation's error, without the traceback that Hindsight adds."""
    return (error or "").partition("\n")[0][:200]


def _why_missing(operations: DocumentOperations, dead_letter: str) -> str:
    if operations.pending:
        return f"its retain is stalled since {operations.pending[0].operation.created_at}"
    if operations.failed:
        return f"its retain failed: {first_line(operations.failed[0].operation.error) or 'Hindsight does not say why'}"
    return f"it is a dead letter: {dead_letter}" if dead_letter else ""
