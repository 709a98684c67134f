"""Fakes of the clients that handlers use. They reject what the real servers reject (Hindsight 1.1)."""

import re
import unicodedata
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer.errors import DeadLetterReason, DownKind, Permanent, Transient, Upstream, UpstreamDown
from consumer.handlers.context import HandlerContext
from consumer.memory.documents import Memory, Operation
from consumer.memory.policy import MemoryPolicy, RecallBudget
from demo import recording
from schemas.paperclip import Comment, Issue, Run, is_uuid
from schemas.recalls import RecallRecord

NOW = 1_796_034_000.0
"""The clock of `HandlerFixture`: 2026-11-30T10:20:00Z, just after the recording."""


def unreachable(upstream: Upstream) -> UpstreamDown:
    return UpstreamDown("connection refused", upstream=upstream, kind=DownKind.UNREACHABLE)


def rejected(status: int) -> Permanent:
    return Permanent(f"answered {status}", reason=DeadLetterReason.REJECTED, upstream=Upstream.HINDSIGHT)


class _Scripted:
    """Notes all calls, and fails those that a test scripts to fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, list[Exception]] = defaultdict(list)

    def fail(self, method: str, *errors: Exception) -> None:
        """Make the next calls of this method raise these errors, one each."""
        self.failures[method] += errors

    def called(self, method: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == method]

    def _call(self, method: str, *args: Any) -> None:
        self.calls.append((method, *args))
        if self.failures[method]:
            raise self.failures[method].pop(0)


@dataclass
class Child:
    """A child `retain` operation. A worker that has begun stores the document, even if the operation is cancelled."""

    id: str
    bank: str
    memory: Memory
    status: str = "pending"
    begun: bool = False
    created_at: str | None = "2026-11-30T09:55:17.231405+00:00"
    updated_at: str | None = "2026-11-30T10:20:00+00:00"


class FakeHindsight(_Scripted):
    """Banks, documents and operations. A retain is pending until `run_workers`."""

    def __init__(self) -> None:
        super().__init__()
        self.banks: dict[str, dict[str, Memory]] = {}
        self.children: list[Child] = []
        self.operation_ids: dict[str, str] = {}

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        self._call("recall", bank, query, budget, max_tokens)
        query.encode()
        if not re.sub(r"[^\w\s]", " ", query.lower()).split():
            raise rejected(422)
        words = set(re.findall(r"\w+", query.lower()))
        documents = self.banks.get(bank, {}).values()
        return [memory.content for memory in documents if words & set(re.findall(r"\w+", memory.content.lower()))]

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:
        self._call("retain", bank, memory, operation_id)
        self._check_bank(bank)
        uuid.UUID(operation_id)
        memory.content.encode()
        if not memory.content.strip() or not all(isinstance(value, str) for value in memory.metadata.values()):
            raise rejected(422)
        if self.operation_ids.setdefault(operation_id, bank) != bank:
            raise Transient("answered 409", upstream=Upstream.HINDSIGHT)
        self.banks.setdefault(bank, {})
        if not any(child.id == f"child of {operation_id}" for child in self.children):
            self.children.append(Child(f"child of {operation_id}", bank, memory))

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        self._call("unfinished_retains", bank, document_id)
        return self._retains(bank, document_id, "pending", "processing")

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        self._call("cancelled_retains", bank, document_id)
        return self._retains(bank, document_id, "cancelled")

    async def cancel(self, bank: str, operation_id: str) -> bool:
        self._call("cancel", bank, operation_id)
        child = self._child(bank, operation_id)
        if child.status not in ("pending", "processing"):
            return False
        child.status = "cancelled"
        return True

    async def delete_document(self, bank: str, document_id: str) -> bool:
        self._call("delete_document", bank, document_id)
        return self.banks.get(bank, {}).pop(document_id, None) is not None

    def start_workers(self) -> None:
        """Make the workers begin all pending operations."""
        for child in self.children:
            if child.status == "pending":
                child.status, child.begun = "processing", True

    def run_workers(self) -> None:
        """Make the workers finish all operations that are not cancelled before they begin."""
        self.start_workers()
        for child in self.children:
            if child.begun:
                child.begun = False
                self.banks[child.bank][child.memory.document_id] = child.memory
                child.status = "completed" if child.status == "processing" else child.status

    @property
    def documents(self) -> dict[str, str]:
        """Every stored document and its bank; fails if two banks store the same document."""
        pairs = [(document, bank) for bank, documents in self.banks.items() for document in documents]
        assert len(pairs) == len(dict(pairs))
        return dict(pairs)

    def _retains(self, bank: str, document_id: str, *statuses: str) -> list[Operation]:
        return [
            Operation(child.id, "retain", child.status, document_id, child.created_at, None, child.updated_at)
            for child in self.children
            if child.bank == bank and child.memory.document_id == document_id and child.status in statuses
        ]

    def _child(self, bank: str, operation_id: str) -> Child:
        return next(child for child in self.children if child.bank == bank and child.id == operation_id)

    @staticmethod
    def _check_bank(bank: str) -> None:
        invalid = "/" in bank or bank.startswith("_") or any(unicodedata.category(char) == "Cc" for char in bank)
        if not bank or invalid or len(bank.encode()) > 192:
            raise rejected(400)


class FakePaperclip(_Scripted):
    """Answers from the recording, which a test can change."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = {run["id"]: run for run in recording.runs()}
        self.issues = {issue["id"]: issue for issue in recording.issues()}
        self.comments = {comment["id"]: comment for comment in recording.comments()}
        self.agent_ids = [agent["id"] for agent in recording.agents()]

    async def run(self, run_id: str) -> Run | None:
        self._lookup("run", run_id)
        return Run.model_validate(self.runs[run_id]) if run_id in self.runs else None

    async def issue(self, issue_id: str) -> Issue | None:
        self._lookup("issue", issue_id)
        return Issue.model_validate(self.issues[issue_id]) if issue_id in self.issues else None

    async def issue_by_identifier(self, identifier: str) -> Issue | None:
        self._call("issue_by_identifier", identifier)
        matches = [issue for issue in self.issues.values() if issue.get("identifier") == identifier]
        return Issue.model_validate(matches[0]) if matches else None

    async def comment(self, issue_id: str, comment_id: str) -> Comment | None:
        self._lookup("comment", issue_id, comment_id)
        comment = self.comments.get(comment_id)
        return Comment.model_validate(comment) if comment is not None and comment["issueId"] == issue_id else None

    async def agents(self, company_id: str) -> Sequence[str]:
        self._lookup("agents", company_id)
        return self.agent_ids

    def _lookup(self, method: str, *ids: str) -> None:
        self._call(method, *ids)
        if not all(is_uuid(id_) for id_ in ids):
            raise Transient("answered 500", upstream=Upstream.PAPERCLIP)


@dataclass
class FakeRecalls:
    """The recalls topic: all records in order, a tombstone as None."""

    log: list[tuple[str, RecallRecord | None]] = field(default_factory=list)
    down: bool = False

    async def publish(self, record: RecallRecord) -> None:
        await self._append(record.run_id, record)

    async def publish_tombstone(self, run_id: str) -> None:
        await self._append(run_id, None)

    @property
    def last(self) -> RecallRecord:
        record = self.log[-1][1]
        assert record is not None
        return record

    @property
    def compacted(self) -> dict[str, RecallRecord]:
        return {run: record for run, record in dict(self.log).items() if record is not None}

    async def _append(self, run_id: str, record: RecallRecord | None) -> None:
        if self.down:
            raise unreachable(Upstream.KAFKA)
        self.log.append((run_id, record))


@dataclass
class HandlerFixture:
    """All fakes, and the `HandlerContext` made of them.

    Attributes:
        has_paperclip: False: no Paperclip API is configured.
    """

    policy: MemoryPolicy = field(default_factory=MemoryPolicy)
    hindsight: FakeHindsight = field(default_factory=FakeHindsight)
    paperclip: FakePaperclip = field(default_factory=FakePaperclip)
    has_paperclip: bool = True
    recalls: FakeRecalls = field(default_factory=FakeRecalls)
    warnings: list[str] = field(default_factory=list)
    now: float = NOW

    @property
    def context(self) -> HandlerContext:
        return HandlerContext(
            policy=self.policy,
            hindsight=self.hindsight,
            paperclip=self.paperclip if self.has_paperclip else None,
            recalls=self.recalls,
            now=lambda: self.now,
            warn=lambda event, **_fields: self.warnings.append(event),
        )
