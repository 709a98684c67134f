"""What Hindsight stores and works on: the types that its client, the handlers and the tools share."""

from collections.abc import Mapping
from dataclasses import dataclass

from consumer.memory.sanitize import strip_unencodable

STALLED_AFTER = 3600.0
"""Seconds after which an unfinished operation counts as stalled: its worker is gone, and nothing else ends it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A document for Hindsight to retain.

    Attributes:
        timestamp: when the text was written, ISO 8601; None makes Hindsight use the current time.
        metadata: strings only; Hindsight answers 422 to null.
    """

    document_id: str
    content: str
    timestamp: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Operation:
    """An asynchronous operation of Hindsight. `status` is pending, processing, completed, failed or cancelled."""

    id: str
    type: str
    status: str
    document_id: str | None
    created_at: str | None = None
    error: str | None = None
    updated_at: str | None = None


def build_metadata(values: Mapping[str, str | None]) -> dict[str, str]:
    """Return encodable metadata without empty values: Hindsight answers 422 to null."""
    return {name: strip_unencodable(value) for name, value in values.items() if value}
