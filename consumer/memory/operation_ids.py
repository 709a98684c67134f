"""Ids of Hindsight's operations: the same work always has the same id, so that a repeated call is a no-op."""

import json
import uuid

NAMESPACE = uuid.UUID("5f0f0d5c-6d63-5f6e-9c38-0d1f6cbb7a51")
"""Never change it: every stored comment would be retained again."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def operation_id(bank: str, comment_id: str, content: str, repair: str) -> str:
    """UUIDv5 of the compact ASCII JSON of [bank, commentId, content, repair].

    Args:
        repair: "" or what makes the id a new one: Hindsight never works a known id again, not even after its failure
            or after the document's deletion.
    """
    return str(uuid.uuid5(NAMESPACE, _encode([bank, comment_id, content, repair])))
