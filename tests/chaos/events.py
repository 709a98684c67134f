"""What is produced: comments with several versions each, and the operation that each version must become."""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from consumer.memory.operation_ids import operation_id
from schemas.codec import encode

MOST_VERSIONS = 6
HOT_VERSIONS = 40
OPEN_COMMENTS = 60
"""How many comments take turns: the versions of one come close together, with others between."""


@dataclass(frozen=True, slots=True)
class Version:
    """One event: a comment as it reads after an edit; `number` counts from 0."""

    comment: str
    number: int
    operation: str
    value: bytes

    @property
    def key(self) -> bytes:
        return self.comment.encode()


def dice(seed: int, what: str) -> random.Random:
    """What chance decides, the same for the same seed."""
    return random.Random(f"{what} {seed}")  # noqa: S311 - chaos, not secrets


def versions(count: int, chance: random.Random) -> Iterator[Version]:
    """So many events; one comment in fifty is edited all the time."""
    company, issue = _uuid(chance), _uuid(chance)
    agents = [_uuid(chance) for _ in range(5)]
    open_comments: list[Iterator[Version]] = []
    while count:
        if len(open_comments) < OPEN_COMMENTS:
            most = HOT_VERSIONS if chance.random() < 0.02 else MOST_VERSIONS
            open_comments.append(_comment(company, issue, chance.choice(agents), chance.randint(1, most), chance))
        comment = chance.choice(open_comments)
        version = next(comment, None)
        if version is None:
            open_comments.remove(comment)
        else:
            count -= 1
            yield version


def _comment(company: str, issue: str, agent: str, count: int, chance: random.Random) -> Iterator[Version]:
    comment = _uuid(chance)
    for number in range(count):
        body = f"Version {number} of comment {comment}."
        event = {
            "eventId": _uuid(chance),
            "eventType": "issue.comment.created",
            "occurredAt": "2026-11-30T10:00:00.000Z",
            "actorId": agent,
            "actorType": "agent",
            "entityId": issue,
            "entityType": "issue",
            "companyId": company,
            "payload": {
                "commentId": comment,
                "agentId": agent,
                "comment": {
                    "id": comment,
                    "companyId": company,
                    "issueId": issue,
                    "authorType": "agent",
                    "authorAgentId": agent,
                    "body": body,
                    "createdAt": "2026-11-30T10:00:00.000Z",
                },
            },
        }
        operation = operation_id(f"paperclip::{company}::{agent}", comment, body, "")
        yield Version(comment, number, operation, encode(event))


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))
