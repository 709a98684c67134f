"""What handlers need, as protocols: the clients, the recalls, the rules, and how the record was delivered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from consumer.memory.policy import RecallBudget, Rules
from schemas.objects import Comment, Issue, Run
from schemas.recalls import RecallRecord


@dataclass(frozen=True, slots=True)
class Memory:
    """One document for Hindsight to retain.

    Attributes:
        timestamp: when it was said, ISO 8601; None lets Hindsight take now.
        metadata: strings only.
    """

    document_id: str
    content: str
    timestamp: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Operation:
    """An asynchronous operation of Hindsight. `status`: pending, processing, completed, failed, cancelled."""

    id: str
    type: str
    status: str
    document_id: str | None
    created_at: str | None = None
    error: str | None = None
    updated_at: str | None = None


class Hindsight(Protocol):
    """What handlers ask of Hindsight. Each method raises from `consumer.errors`."""

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        """Texts of the memories that matter, best first; empty also for a bank that does not exist yet.

        Raises `Permanent` with reason `rejected` on a 400 (a query over the limit of old versions).
        """

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:
        """Queue a document; a repeated `operation_id` is a no-op."""

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Pending and processing *child* `retain` operations of a document, in all pages."""

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        """Cancelled child `retain` operations of a document, in all pages."""

    async def cancel(self, bank: str, operation_id: str) -> bool:
        """Cancel an operation; False when refused (finished or already cancelled: 409, 404)."""

    async def delete_document(self, bank: str, document_id: str) -> bool:
        """Delete a document with its memories; False if there was none."""


class Paperclip(Protocol):
    """What handlers ask of Paperclip. Each method raises from `consumer.errors`; None is a 404."""

    async def run(self, run_id: str) -> Run | None: ...

    async def issue(self, issue_id: str) -> Issue | None: ...

    async def comment(self, issue_id: str, comment_id: str) -> Comment | None: ...

    async def agents(self, company_id: str) -> Sequence[str]:
        """Ids of all agents of a company."""


class Recalls(Protocol):
    """Where recalled memories go. Each method returns when Kafka has acknowledged, or raises `UpstreamDown`."""

    async def publish(self, record: RecallRecord) -> None: ...

    async def end(self, run_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a record reached the handler.

    Attributes:
        timestamp: Kafka's timestamp of the record, seconds since the epoch.
        repair: the header `repair`: "" or what makes the operation id a new one.
        replayed: the record is not fresh (header `replay`, or `repair` set): never trust its own copy of a comment.
    """

    timestamp: float
    repair: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """Everything a handler may use. `paperclip` is None when no Paperclip API is configured.

    Attributes:
        now: seconds since the epoch.
        warn: says something to the operator (event name and fields), once where it would repeat.
    """

    rules: Rules
    hindsight: Hindsight
    paperclip: Paperclip | None
    recalls: Recalls
    now: Callable[[], float]
    warn: Callable[..., None] = field(default=lambda *_args, **_fields: None)
