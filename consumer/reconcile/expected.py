"""The document that Hindsight should hold for a comment, as `plan_retain` decides it."""

import hashlib
from dataclasses import dataclass

from consumer.handlers.results import Skipped, SkipReason
from consumer.handlers.retain_plan import LoadedComment, plan_retain
from consumer.memory.policy import MemoryPolicy
from consumer.relay.event_builder import Json
from schemas.paperclip import Comment, Issue


@dataclass(frozen=True, slots=True)
class Place:
    """A bank, and the SHA-256 in hex of the text's UTF-8: Hindsight's `content_hash`."""

    bank: str
    text_hash: str


def expected(comment: Json, issue: Json, policy: MemoryPolicy) -> Place | SkipReason:
    """Return the bank and text that a living comment should be stored with, or why it should not be stored."""
    loaded = LoadedComment(Comment.model_validate(comment), comment["companyId"], issue["id"])
    plan = plan_retain(loaded, Issue.model_validate(issue), policy)
    if isinstance(plan, Skipped):
        return plan.reason
    return Place(plan.bank, hashlib.sha256(plan.memory.content.encode()).hexdigest())
