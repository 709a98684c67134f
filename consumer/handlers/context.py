"""What a handler gets: its clients as protocols, the memory policy, and how the record was delivered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from consumer.memory.documents import Memory, Operation
from consumer.memory.policy import MemoryPolicy, RecallBudget
from schemas.paperclip import Comment, Issue, Run
from schemas.recalls import RecallRecord


class Hindsight(Protocol):
    """The calls to Hindsight. Each raises from `consumer.errors`."""

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        """Return the texts of relevant memories, best first; empty also for a bank that does not exist yet.

        Raises `Permanent` with reason `rejected` on a 400 (a query over the limit of old versions).
        """

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:
        """Queue a document; a repeated `operation_id` has no effect."""

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Return all pending and processing *child* `retain` operations of a document."""

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Return all cancelled child `retain` operations of a document."""

    async def cancel(self, bank: str, operation_id: str) -> bool:
        """Cancel an operation; False if refused (finished or already cancelled: 409, 404)."""

    async def delete_document(self, bank: str, document_id: str) -> bool:
        """Delete a document with its memories; False if there was none."""


class Paperclip(Protocol):
    """The calls to Paperclip. Each raises from `consumer.errors`, and returns None for a 404."""

    async def run(self, run_id: str) -> Run | None: ...

    async def issue(self, issue_id: str) -> Issue | None: ...

    async def issue_by_identifier(self, identifier: str) -> Issue | None:
        """Return the issue with an identifier such as `PAP-12`; None also for a text that is not an identifier."""

    async def comment(self, issue_id: str, comment_id: str) -> Comment | None: ...

    async def agents(self, company_id: str) -> Sequence[str]:
        """Return the ids of all agents of a company."""


class RecallTopic(Protocol):
    """The recalls topic. Each method returns once Kafka has acknowledged the write, or raises `UpstreamDown`."""

    async def publish(self, record: RecallRecord) -> None:
        """Write the memories recalled for a run."""

    async def publish_tombstone(self, run_id: str) -> None:
        """Write a tombstone for a run that has ended."""


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """How a record was delivered.

    Attributes:
        timestamp: Kafka's timestamp of the record, seconds since the epoch.
        repair: text of the header `repair`, which makes the operation id a new one; "" without the header.
        replayed: the record is not fresh (header `replay` or `repair`), so the comment in it may be out of date.
    """

    timestamp: float
    repair: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Everything that a handler may use.

    Attributes:
        paperclip: None if no Paperclip API is configured.
        now: returns seconds since the epoch.
        warn: tells the operator (event name and fields); repeated warnings are logged once.
    """

    policy: MemoryPolicy
    hindsight: Hindsight
    paperclip: Paperclip | None
    recalls: RecallTopic
    now: Callable[[], float]
    warn: Callable[..., None] = field(default=lambda *_args, **_fields: None)
