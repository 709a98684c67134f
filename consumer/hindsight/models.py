"""Models of Hindsight's responses, limited to the fields in use (API 1.1.0; older versions omit some of them)."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from consumer.memory.documents import Operation


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(_Model):
    """A document of a bank; `original_text` is None in a listing.

    `content_hash` is the hex SHA-256 of the text in UTF-8.
    """

    id: str
    original_text: str | None = None
    content_hash: str | None = None
    document_metadata: dict[str, Any] | None = None
    retain_params: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    memory_unit_count: int | None = None

    @property
    def event_date(self) -> str | None:
        """The `timestamp` of the retain, ISO 8601 with an offset."""
        date = (self.retain_params or {}).get("event_date")
        return date if isinstance(date, str) else None


class Stats(_Model):
    """Statistics of a bank. Hindsight caches them for 60 s."""

    pending_operations: int
    failed_operations: int
    pending_consolidation: int
    failed_consolidation: int = 0
    last_consolidated_at: str | None = None
    operations_by_status: dict[str, int] = Field(default_factory=dict)


class DocumentPage(_Model):
    """A page of `GET …/documents`."""

    items: list[Document]
    total: int


class BankRow(_Model):
    """A row of `GET …/banks`."""

    bank_id: str


class BankPage(_Model):
    """A page of `GET …/banks`, most recently written first; older versions have no `total`."""

    banks: list[BankRow]
    total: int | None = None


class OperationRow(_Model):
    """A row of `GET …/operations`."""

    id: str
    task_type: str
    status: str
    document_id: str | None = None
    created_at: str | None = None
    error_message: str | None = None
    updated_at: str | None = None

    @property
    def operation(self) -> Operation:
        """The row as an `Operation`."""
        return Operation(
            self.id,
            self.task_type,
            self.status,
            self.document_id,
            self.created_at,
            self.error_message,
            self.updated_at,
        )


class OperationPage(_Model):
    """A page of `GET …/operations`."""

    operations: list[OperationRow]
    total: int
