"""Reconcile's parts on a fake Paperclip and a fake Hindsight."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from consumer.hindsight.models import Document
from consumer.memory.documents import Operation
from consumer.memory.policy import MemoryPolicy
from consumer.paperclip.models import Json
from consumer.reconcile.audit import SETTLE_TIME, Audit
from consumer.reconcile.findings import Report
from consumer.reconcile.repair import Repair
from schemas.timestamps import format_timestamp
from tests.support.fake_feed import COMPANY, NOON
from tests.unit.relay.harness import RelayHarness


@dataclass
class FakeHindsightStore:
    """Documents and operations by bank.

    Attributes:
        unlisted: documents that lists leave out.
        cancelled: operations that were cancelled.
    """

    banks: dict[str, dict[str, Document]] = field(default_factory=dict)
    operations_by_bank: dict[str, list[Operation]] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    cancelled: list[str] = field(default_factory=list)

    def store(self, bank: str, id_: str, text: str = "Said.", **more: str) -> None:
        text_hash = hashlib.sha256(text.encode()).hexdigest()
        metadata = {"commentId": id_, "companyId": COMPANY} | more
        updated_at = format_timestamp(NOON)
        document = Document(id=id_, content_hash=text_hash, document_metadata=metadata, updated_at=updated_at)
        self.banks.setdefault(bank, {})[id_] = document

    async def documents(self, bank: str) -> AsyncIterator[Document]:
        for document in self.banks.get(bank, {}).values():
            if document.id not in self.unlisted:
                yield document

    async def document(self, bank: str, document_id: str) -> Document | None:
        return self.banks.get(bank, {}).get(document_id)

    async def operations(
        self,
        bank: str,
        *,
        status: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> AsyncIterator[Operation]:
        for operation in self.operations_by_bank.get(bank, []):
            if operation.status == status:
                yield operation

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        operations = self.operations_by_bank.get(bank, [])
        return [operation for operation in operations if operation.document_id == document_id]

    async def cancel(self, bank: str, operation_id: str) -> bool:
        self.cancelled.append(operation_id)
        return True

    async def delete_document(self, bank: str, document_id: str) -> bool:
        return self.banks.get(bank, {}).pop(document_id, None) is not None


class ReconcileHarness(RelayHarness):
    """One company with two agents, Ada and Bea, and its documents."""

    def __init__(self, **policy: Any) -> None:
        super().__init__()
        self.hindsight = FakeHindsightStore()
        self.policy = MemoryPolicy(**policy)
        self.ada, self.bea = self.feed.agent_ids
        self.adas_bank, self.beas_bank = (f"paperclip::{COMPANY}::{agent}" for agent in self.feed.agent_ids)
        self.dead_letters: dict[str, str] = {}
        self.issues: dict[str, Json] = {}

    async def audit(self, since: float = 0.0) -> Report:
        """Audit the company when all comments have settled."""
        self.feed.advance(SETTLE_TIME + 1)
        audit = Audit(
            self.feed,
            self.hindsight,
            self.policy,
            self.dead_letters,
            lambda: self.feed.now,
            lambda _: lambda _done, _total: None,
        )
        report, self.issues = await audit.run(COMPANY, since)
        return report

    async def repair(self, report: Report) -> int:
        repair = Repair(self.feed, self.hindsight, self.publisher, self.enricher, self.issues, "audit 1")
        return await repair.run(report)
