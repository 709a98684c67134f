"""The records of all runs: comments that carry all that a retain needs, so that nobody asks Paperclip."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Iterator
from random import Random

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

COMMENTS = "bench.comments"
RUNS = "bench.runs"
RECALLS = "bench.recalls"
DEAD_LETTERS = "bench.dead-letters"
PARTITIONS = 8

COMPANY = "0c51c9ad-9a26-4c0a-8f0e-5d1a1c6f1f01"
AGENT = "1e6b6f0e-7c1f-4d3b-9f54-3a2f0f8f7a02"
ISSUE = "7d1b3c5e-0c59-4c8c-9a5e-2d1f6c0b9a10"
BANK = f"paperclip::{COMPANY}::{AGENT}"
AT = "2026-11-30T10:00:00.000Z"
BODY = (
    "Rotated the signing keys of the staging cluster and checked that both old and new tokens verify. "
    "Next: the same in production, on Tuesday, with the on-call engineer. Step {number} of the plan is done; "
    "the `rotate-keys` job took 41 s, its log is attached. Nobody was logged out — as hoped."
)

Produced = tuple[bytes, bytes]
"""Key and value."""


def comments(count: int) -> Iterator[Produced]:
    """So many `issue.comment.created`, each of another comment; the same ones each time."""
    ids = Random(7)  # noqa: S311 - ids, not secrets
    for number in range(count):
        comment, event = _uuid(ids), _uuid(ids)
        yield comment.encode(), _json(_created(event, comment, number))


def runs(count: int) -> Iterator[Produced]:
    """So many `agent.run.started`, never the same ones; Paperclip must be asked for each."""
    for _ in range(count):
        run, event = str(uuid.uuid4()), str(uuid.uuid4())
        yield run.encode(), _json(_envelope(event, "agent.run.started", run, "run", _run(run)))


def retain_body(number: int) -> bytes:
    """The request that the worker makes of comment number so-and-so."""
    comment = str(uuid.UUID(int=number))
    metadata = {"agentId": AGENT, "companyId": COMPANY, "issueId": ISSUE, "commentId": comment, "authorType": "agent"}
    item = {
        "content": BODY.format(number=number),
        "context": "paperclip",
        "document_id": comment,
        "metadata": metadata,
        "timestamp": AT,
    }
    return _json({"items": [item], "async": True, "operation_id": comment})


def fill(bootstrap: str, topic: str, records: Iterable[Produced]) -> None:
    """Create a topic, if it is not there, and produce the records into it."""
    asyncio.run(_fill(bootstrap, topic, records))


async def _fill(bootstrap: str, topic: str, records: Iterable[Produced]) -> None:
    await create(bootstrap, topic)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=128 * 1024)
    await producer.start()
    try:
        for key, value in records:
            await producer.send(topic, value, key=key)
        await producer.flush()
    finally:
        await producer.stop()


async def create(bootstrap: str, topic: str) -> None:
    """Create a topic; it may be there already."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()


def _created(event: str, comment: str, number: int) -> dict[str, object]:
    body = BODY.format(number=number)
    payload = {
        "commentId": comment,
        "bodySnippet": body[:120],
        "identifier": "OPS-7",
        "issueTitle": "Rotate the signing keys",
        "agentId": AGENT,
        "comment": {
            "id": comment,
            "companyId": COMPANY,
            "issueId": ISSUE,
            "authorType": "agent",
            "authorAgentId": AGENT,
            "body": body,
            "createdAt": AT,
            "updatedAt": AT,
        },
    }
    return _envelope(event, "issue.comment.created", ISSUE, "issue", payload)


def _run(run: str) -> dict[str, object]:
    return {"runId": run, "agentId": AGENT, "issueId": ISSUE, "status": "running", "startedAt": AT}


def _envelope(event: str, event_type: str, entity: str, entity_type: str, payload: object) -> dict[str, object]:
    return {
        "eventId": event,
        "eventType": event_type,
        "occurredAt": AT,
        "actorId": AGENT,
        "actorType": "agent",
        "entityId": entity,
        "entityType": entity_type,
        "companyId": COMPANY,
        "payload": payload,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _uuid(ids: Random) -> str:
    return str(uuid.UUID(int=ids.getrandbits(128), version=4))
