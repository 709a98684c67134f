"""Stable ids: the same work always has the same id, so that a repeated call to Hindsight has no effect."""

import json
import uuid

NAMESPACE = uuid.UUID("5f0f0d5c-6d63-5f6e-9c38-0d1f6cbb7a51")
"""Never change it: every stored comment would be retained again."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def stable_id(*parts: str) -> str:
    """Return the UUIDv5 of the parts, encoded as a compact ASCII JSON list."""
    return str(uuid.uuid5(NAMESPACE, _encode(parts)))


def operation_id(bank: str, comment_id: str, content: str, repair: str) -> str:
    """Return the id of a retain operation.

    Args:
        repair: makes the id differ from that of an earlier attempt; "" for the first one. Hindsight never runs a known
            id again, not even after the operation failed or its document was deleted.
    """
    return stable_id(bank, comment_id, content, repair)
