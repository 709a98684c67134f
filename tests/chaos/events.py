"""The produced events: comments with several versions each, and the operation id that each version must get."""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from consumer.memory.operation_ids import operation_id
from schemas.codec import encode

MOST_VERSIONS = 6
HOT_VERSIONS = 40
FORBIDDEN_AGENT = "f0f0f0f0-f0f0-4f0f-8f0f-f0f0f0f0f0f0"
"""The sink refuses this agent's bank, and only this one, for good."""
OPEN_COMMENTS = 60
"""How many comments are interleaved, so that versions of one comment come close together."""


@dataclass(frozen=True, slots=True)
class Version:
    """One event: a version of a comment; `number` counts from 0."""

    comment: str
    number: int
    operation: str
    value: bytes
    forbidden: bool = False

    @property
    def key(self) -> bytes:
        return self.comment.encode()


def seeded_rng(seed: int, purpose: str) -> random.Random:
    """A random generator for one purpose of a seed; the same arguments give the same sequence."""
    return random.Random(f"{purpose} {seed}")  # noqa: S311 - chaos, not secrets


def versions(count: int, rng: random.Random) -> Iterator[Version]:
    """`count` events; one comment in fifty has very many versions.

    In the first third, a few comments are by `FORBIDDEN_AGENT`: its attempts end only while others succeed.
    """
    company, issue = _uuid(rng), _uuid(rng)
    agents = [_uuid(rng) for _ in range(5)]
    open_comments: list[Iterator[Version]] = []
    total = count
    while count:
        if count * 3 > total * 2 and rng.random() < 0.006:
            open_comments.append(_comment(company, issue, FORBIDDEN_AGENT, 1, rng))
        if len(open_comments) < OPEN_COMMENTS:
            most = HOT_VERSIONS if rng.random() < 0.02 else MOST_VERSIONS
            open_comments.append(_comment(company, issue, rng.choice(agents), rng.randint(1, most), rng))
        comment = rng.choice(open_comments)
        version = next(comment, None)
        if version is None:
            open_comments.remove(comment)
        else:
            count -= 1
            yield version


def _comment(company: str, issue: str, agent: str, count: int, rng: random.Random) -> Iterator[Version]:
    comment = _uuid(rng)
    for number in range(count):
        body = f"Version {number} of comment {comment}."
        event = {
            "eventId": _uuid(rng),
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
        yield Version(comment, number, operation, encode(event), agent == FORBIDDEN_AGENT)


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
