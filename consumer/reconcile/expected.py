"""Where a comment must be in Hindsight, and with which text: what `handlers.retain` itself would do with it."""

import hashlib
from dataclasses import dataclass

from consumer.handlers.context import Delivery, Memory, Needs, Operation
from consumer.handlers.results import Skipped, SkipReason
from consumer.handlers.retain import retain
from consumer.memory.policy import RecallBudget, Rules
from consumer.relay.event_builder import Json, issue_copy, of_comment
from schemas.codec import parse
from schemas.recalls import RecallRecord


@dataclass(frozen=True, slots=True)
class Place:
    """A bank, and the SHA-256 in hex of the text's UTF-8: Hindsight's `content_hash`."""

    bank: str
    text_hash: str


async def expected(comment: Json, issue: Json, rules: Rules) -> Place | SkipReason:
    """Where the rules put a living comment, or why they do not."""
    envelope = of_comment(comment, issue)
    copies = {"comment": comment, "issue": issue_copy(issue, described=False)}
    event = parse(envelope | {"payload": envelope["payload"] | copies})
    note = _Note()
    needs = Needs(rules, hindsight=note, paperclip=None, recalls=note, now=lambda: 0.0)
    outcome = await retain(event, Delivery(timestamp=0.0), needs)  # type: ignore[arg-type]  # parsed by its type
    if isinstance(outcome, Skipped):
        return outcome.reason
    bank, content = note.retained[0]
    return Place(bank, hashlib.sha256(content.encode()).hexdigest())


class _Note:
    """A Hindsight that only notes what it is asked to retain; nothing else is asked of it for a living comment."""

    def __init__(self) -> None:
        self.retained: list[tuple[str, str]] = []

    async def retain(self, bank: str, memory: Memory, operation_id: str) -> None:  # noqa: ARG002 - the protocol
        self.retained.append((bank, memory.content))

    async def recall(self, bank: str, query: str, budget: RecallBudget, max_tokens: int) -> list[str]:
        raise NotImplementedError

    async def unfinished_retains(self, bank: str, document_id: str) -> list[Operation]:
        raise NotImplementedError

    async def cancelled_retains(self, bank: str, document_id: str) -> list[Operation]:
        raise NotImplementedError

    async def cancel(self, bank: str, operation_id: str) -> bool:
        raise NotImplementedError

    async def delete_document(self, bank: str, document_id: str) -> bool:
        raise NotImplementedError

    async def publish(self, record: RecallRecord) -> None:
        raise NotImplementedError

    async def end(self, run_id: str) -> None:
        raise NotImplementedError
