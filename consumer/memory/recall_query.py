"""Builds the query of a recall from the run's issue and comments."""

import re
from collections.abc import Iterable

from consumer.memory.sanitize import is_blank, sanitize
from schemas.paperclip import WakeComment

MAX_CHARACTERS = 2_000


def build_query(title: str | None, description: str | None, comments: Iterable[WakeComment]) -> str:
    """Join title, description and the comments that woke the run, newest first, one per line; at most 2,000 characters.

    Quarantined comments are left out: text that Paperclip does not trust must not decide what is recalled.
    """
    trusted = [comment for comment in comments if not (comment.source_trust and comment.source_trust.is_quarantined)]
    newest_first = sorted(trusted, key=lambda comment: comment.created_at or "", reverse=True)
    texts = [sanitize(text) for text in (title, description, *(comment.body for comment in newest_first)) if text]
    return "\n".join(text for text in texts if not is_blank(text))[:MAX_CHARACTERS]


def is_searchable(query: str) -> bool:
    r"""Whether Hindsight accepts the query: it answers 422 if no token is left after `[^\w\s]` became blanks."""
    return re.search(r"\w", query.lower()) is not None


def first_half(query: str) -> str:
    """Return the first half of a query, for Hindsight versions that reject long ones."""
    return query[: len(query) // 2]
