"""What a tool answers, in words for an agent; the two servers put it on the wire."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import HandlingError, Permanent, Upstream
from consumer.memory.formatting import as_lines
from consumer.memory.markers import fence
from consumer.memory.sanitize import mend
from consumer.tools.credentials import Refused

MAX_BYTES = 900_000
"""Most bytes of a served text, as JSON: Paperclip's gateway takes 1,000,000 for the whole reply."""
_MAX_CHARACTER = 12  # an emoji in ASCII JSON
NOTHING = "No relevant memories found."
SAVED = "Memory saved."
_RETRY_AFTER = 5
_NAMES = {Upstream.HINDSIGHT: "Hindsight", Upstream.PAPERCLIP: "Paperclip"}


class Tool(StrEnum):
    """What is called (closed: a metric label)."""

    RECALL = "hindsight_recall"
    RETAIN = "hindsight_retain"
    RUN_MEMORIES = "run_memories"  # GET /v1/runs/{runId}/memories
    OTHER = "other"  # refused before it was known what was called


class ToolOutcome(StrEnum):
    """How a call ended (closed: a metric label)."""

    CACHED = "cached"  # what was recalled at the run's start
    LIVE = "live"  # asked of Hindsight now, or stored there
    EMPTY = "empty"  # there is nothing relevant
    DENIED = "denied"  # refused: who calls is not proven, or it may not, or the call is wrong
    FAILED = "failed"  # Hindsight or Paperclip did not answer, or not in time


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes:
        text: for the agent.
        status: what it amounts to in HTTP.
        retry_after: seconds after which another try makes sense.
        document_id: of what was stored.
    """

    text: str
    outcome: ToolOutcome
    status: int = 200
    retry_after: int | None = None
    document_id: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the call did what it was for."""
        return self.outcome not in (ToolOutcome.DENIED, ToolOutcome.FAILED)


def memories(texts: Iterable[str], outcome: ToolOutcome) -> Answer:
    """Memories as fenced lines, best first, as many as fit; "No relevant memories found." if there are none."""
    lines = _fitting(as_lines(mend(text) for text in texts))
    return Answer(fence(lines), outcome) if lines else Answer(NOTHING, ToolOutcome.EMPTY)


def _fitting(lines: str) -> str:
    """The first lines, as many as fit; if not even one does, its beginning."""
    room = MAX_BYTES - 1000  # the rest of the reply
    if len(lines) * _MAX_CHARACTER <= room:
        return lines
    kept = list[str]()
    for line in lines.splitlines():
        room -= len(json.dumps(line))
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept) or lines[: (MAX_BYTES - 1000) // _MAX_CHARACTER]


def denied(refusal: Refused) -> Answer:
    """A refusal, in its own words."""
    return Answer(refusal.words, ToolOutcome.DENIED, refusal.status)


def failed(effect: str, error: HandlingError) -> Answer:
    """A failure of an upstream: what it means for the agent, and whose it is; never the error's own text."""
    name = _NAMES[error.upstream or Upstream.HINDSIGHT]
    if isinstance(error, Permanent):
        return Answer(f"{effect}: {name} refuses it.", ToolOutcome.FAILED, 502)
    wait = getattr(error, "retry_after", None)
    after = _RETRY_AFTER if wait is None else max(1, round(wait))
    return Answer(f"{effect}: {name} is not available now. Try again in {after} s.", ToolOutcome.FAILED, 503, after)


def late(effect: str) -> Answer:
    """Time ran out."""
    text = f"{effect}: there was no answer in time. Try again in {_RETRY_AFTER} s."
    return Answer(text, ToolOutcome.FAILED, 504, _RETRY_AFTER)
