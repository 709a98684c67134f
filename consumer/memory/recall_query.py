"""The query of a recall: what the run is about."""

import re
from collections.abc import Iterable

from consumer.memory.sanitize import blank, clean
from schemas.objects import WakeComment

MAX_CHARACTERS = 2_000
_QUARANTINED = "quarantined"


def query_of(title: str | None, description: str | None, comments: Iterable[WakeComment]) -> str:
    """Title, description and the comments that woke the run, newest first, a line each, cut to 2,000 characters.

    Quarantined comments never enter it: what Paperclip does not trust must not steer what is remembered.
    """
    trusted = [each for each in comments if not (each.source_trust and each.source_trust.disposition == _QUARANTINED)]
    newest_first = sorted(trusted, key=lambda each: each.created_at or "", reverse=True)
    texts = [clean(text) for text in (title, description, *(each.body for each in newest_first)) if text]
    return "\n".join(text for text in texts if not blank(text))[:MAX_CHARACTERS]


def has_word(query: str) -> bool:
    r"""Whether Hindsight will take it: it answers 422 if `[^\w\s]` replaced by blanks leaves no token."""
    return re.search(r"\w", query.lower()) is not None


def halve(query: str) -> str:
    """The first half, for versions of Hindsight that refuse a long query."""
    return query[: len(query) // 2]
