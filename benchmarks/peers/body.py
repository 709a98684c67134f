"""What every peer does with a record: the retain call of a comment event, with the fields that the worker sends."""

import json
import uuid
from typing import Any
from urllib.parse import quote

NAMESPACE = uuid.UUID("5f0f0d5c-6d63-5f6e-9c38-0d1f6cbb7a51")
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


def retain_call(event: dict[str, Any]) -> tuple[str, bytes]:
    """Path and body."""
    comment = event["payload"]["comment"]
    agent, company = comment["authorAgentId"], event["companyId"]
    bank = f"paperclip::{company}::{agent}"
    content = comment["body"]
    identity = json.dumps([bank, comment["id"], content, ""], separators=(",", ":"))
    item = {
        "content": content,
        "context": "paperclip",
        "document_id": comment["id"],
        "timestamp": comment["createdAt"],
        "metadata": {
            "agentId": agent,
            "companyId": company,
            "issueId": event["entityId"],
            "commentId": comment["id"],
            "authorType": comment["authorType"],
        },
    }
    body = {"items": [item], "async": True, "operation_id": str(uuid.uuid5(NAMESPACE, identity))}
    return f"/v1/default/banks/{quote(bank, safe='')}/memories", json.dumps(body).encode()
