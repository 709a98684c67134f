"""What an audit finds, as data: comparing what must be held with what is. Pure."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from consumer.handlers.results import SkipReason
from consumer.memory.documents import Operation
from consumer.reconcile.expected import Place

HUNG_AFTER = 3600.0
"""Seconds after which an operation that is not over has lost its worker (as in `handlers.forget`)."""


class Kind(StrEnum):
    """What is wrong with a comment's document."""

    MISSING = "missing"  # in no bank
    STALE = "stale"  # with another text
    DOUBLED = "doubled"  # in more than one bank
    LEFT_OVER = "left_over"  # of a comment that Paperclip names as deleted or cancelled


@dataclass(frozen=True, slots=True)
class Subject:
    """A comment that Paperclip has, as far as an audit needs it.

    Attributes:
        created: seconds since the epoch.
        place: where the rules put it, or why they do not.
    """

    comment: str
    issue: str
    created: float
    place: Place | SkipReason


@dataclass(frozen=True, slots=True)
class Held:
    """A document in a bank. `updated`: when it was written last, as Hindsight says it."""

    bank: str
    text_hash: str | None
    updated: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to repair.

    Attributes:
        bank: where it belongs; None for what belongs nowhere.
        wrong: banks that hold it and should not.
        reason: why, where that is known; "" if not.
    """

    kind: Kind
    comment: str
    issue: str
    bank: str | None
    wrong: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Report:
    """What an audit of one company found.

    Attributes:
        comments: living ones that were compared. held: of those, in a bank with their text.
        elsewhere: held, in a bank that the rules would not choose today: their issue or author changed since.
        waiting: not held yet, because Hindsight still works on them.
        skipped: by the rules' reason.
        unknown: documents with a comment's id that Paperclip does not show: never touched.
        failed, hung: operations of Hindsight that did not come to their end, by bank, whose document is not held.
        notes: what could not be looked at, and why.
    """

    company: str
    comments: int = 0
    held: int = 0
    elsewhere: int = 0
    waiting: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failed: list[tuple[str, Operation]] = field(default_factory=list)
    hung: list[tuple[str, Operation]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is to be repaired. Operations of comments show as missing; others' are only named."""
        return not self.findings

    def of_kind(self, kind: Kind) -> list[Finding]:
        """The findings of one kind."""
        return [each for each in self.findings if each.kind is kind]


@dataclass(frozen=True, slots=True)
class Work:
    """Hindsight's operations on a document, newest first, with their banks."""

    pending: tuple[tuple[str, Operation], ...] = ()
    failed: tuple[tuple[str, Operation], ...] = ()


def judge(report: Report, subject: Subject, held: Collection[Held], work: Work, *, hung: bool, letter: str) -> None:
    """Add what a comment's documents show to the report.

    Args:
        hung: whether its pending operations have lost their worker.
        letter: the reason of its dead letter; "" for none.
    """
    place = subject.place
    if isinstance(place, SkipReason):
        report.skipped[place] += 1
        report.comments += 1
        return
    report.comments += 1
    if not held:
        if work.pending and not hung:
            report.waiting += 1
        else:
            reason = _why_missing(work, letter)
            report.findings.append(Finding(Kind.MISSING, subject.comment, subject.issue, place.bank, reason=reason))
        return
    banks = [each.bank for each in held]
    kept = next((each for each in held if each.bank == place.bank), max(held, key=lambda each: each.updated))
    if len(banks) > 1:
        wrong = tuple(bank for bank in banks if bank != kept.bank)
        reason = "its author or its issue's assignee changed" if kept.bank == place.bank else "none is the rules' bank"
        report.findings.append(
            Finding(Kind.DOUBLED, subject.comment, subject.issue, kept.bank, wrong=wrong, reason=reason)
        )
    if kept.text_hash not in (None, place.text_hash):
        reason = "the text differs from the comment's"
        report.findings.append(Finding(Kind.STALE, subject.comment, subject.issue, kept.bank, reason=reason))
        return
    report.held += 1
    report.elsewhere += kept.bank != place.bank


def brief(error: str | None) -> str:
    """The first line of an operation's error, without the traceback that Hindsight adds."""
    return (error or "").partition("\n")[0][:200]


def _why_missing(work: Work, letter: str) -> str:
    if work.pending:
        return f"its retain hangs since {work.pending[0][1].created_at}"
    if work.failed:
        return f"its retain failed: {brief(work.failed[0][1].error) or 'Hindsight does not say why'}"
    return f"it is a dead letter: {letter}" if letter else ""


def judge_gone(report: Report, comment: str, issue: str, held: Collection[Held], how: str) -> None:
    """Add a finding if a comment that Paperclip names as deleted or cancelled is still held."""
    if held:
        wrong = tuple(each.bank for each in held)
        report.findings.append(Finding(Kind.LEFT_OVER, comment, issue, None, wrong=wrong, reason=f"{how} in Paperclip"))
