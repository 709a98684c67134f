"""The document that Hindsight should hold for a comment, as `plan_retain` decides it."""

import hashlib
from dataclasses import dataclass

from consumer.handlers.results import Skipped, SkipReason
from consumer.handlers.retain_plan import LoadedComment, plan_retain
from consumer.memory.policy import MemoryPolicy
from consumer.paperclip.models import Json
from schemas.paperclip import Comment, Issue


@dataclass(frozen=True, slots=True)
class ExpectedDocument:
    """A bank, and the hex SHA-256 of the text in UTF-8, which is Hindsight's `content_hash`."""

    bank: str
    text_hash: str


def expect_document(comment: Json, issue: Json, policy: MemoryPolicy) -> ExpectedDocument | SkipReason:
    """Return the bank and text that a living comment should be stored with, or why it should not be stored."""
    loaded = LoadedComment(Comment.model_validate(comment), comment["companyId"], issue["id"])
    plan = plan_retain(loaded, Issue.model_validate(issue), policy)
    if isinstance(plan, Skipped):
        return plan.reason
    return ExpectedDocument(plan.bank, hashlib.sha256(plan.memory.content.encode()).hexdigest())
