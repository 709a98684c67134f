"""What a tool call returns: text for the agent, outcome and HTTP status. The MCP and REST servers serialize it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from consumer.errors import HandlingError, Permanent, Upstream
from consumer.memory.formatting import format_memories
from consumer.memory.markers import fence
from consumer.memory.sanitize import strip_unencodable
from consumer.tools.credentials import ToolError

MAX_BYTES = 900_000
"""Maximum bytes of a returned text, as JSON: Paperclip's gateway accepts 1,000,000 for the whole response."""
_TEXT_BYTES = MAX_BYTES - 1000  # the rest is the envelope
_MAX_CHARACTER = 12  # bytes of an emoji in ASCII JSON
NO_MEMORIES = "No relevant memories found."
SAVED = "Memory saved."
_RETRY_AFTER = 5
_NAMES = {Upstream.HINDSIGHT: "Hindsight", Upstream.PAPERCLIP: "Paperclip"}


class Tool(StrEnum):
    """The called tool (closed: a metric label)."""

    RECALL = "hindsight_recall"
    RETAIN = "hindsight_retain"
    RUN_MEMORIES = "run_memories"  # GET /v1/runs/{runId}/memories
    OTHER = "other"  # refused before the tool was known


class ToolOutcome(StrEnum):
    """How a call ended (closed: a metric label)."""

    CACHED = "cached"  # recalled at the start of the run
    LIVE = "live"  # searched in or stored to Hindsight now
    EMPTY = "empty"  # nothing relevant
    DENIED = "denied"  # refused: not authenticated, not permitted, or an invalid call
    LIMITED = "limited"  # refused: too many calls of the agent or its company
    FAILED = "failed"  # Hindsight or Paperclip failed, or did not answer in time


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: for the agent.
        status: the corresponding HTTP status.
        retry_after: seconds after which to try again.
        document_id: of the stored text.
    """

    text: str
    outcome: ToolOutcome
    status: int = 200
    retry_after: int | None = None
    document_id: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.outcome not in (ToolOutcome.DENIED, ToolOutcome.LIMITED, ToolOutcome.FAILED)


def memories(texts: Iterable[str], outcome: ToolOutcome) -> ToolResult:
    """Memories as fenced lines, best first, as many as fit; `NO_MEMORIES` if there are none."""
    lines = _truncate(format_memories(strip_unencodable(text) for text in texts))
    return ToolResult(fence(lines), outcome) if lines else ToolResult(NO_MEMORIES, ToolOutcome.EMPTY)


def _truncate(lines: str) -> str:
    """The first lines, as many as fit; if not even one fits, its beginning."""
    remaining = _TEXT_BYTES
    if len(lines) * _MAX_CHARACTER <= remaining:
        return lines
    fitting = list[str]()
    for line in lines.splitlines():
        remaining -= len(json.dumps(line))
        if remaining < 0:
            break
        fitting.append(line)
    return "\n".join(fitting) or lines[: _TEXT_BYTES // _MAX_CHARACTER]


def denied(error: ToolError) -> ToolResult:
    """A refused call."""
    outcome = ToolOutcome.LIMITED if error.status == HTTPStatus.TOO_MANY_REQUESTS else ToolOutcome.DENIED
    return ToolResult(error.message, outcome, error.status, error.retry_after)


def failed(effect: str, error: HandlingError) -> ToolResult:
    """An upstream failure: its effect for the agent and which upstream it was, never the error's own text."""
    name = _NAMES[error.upstream or Upstream.HINDSIGHT]
    if isinstance(error, Permanent):
        return ToolResult(f"{effect}: {name} rejected the request.", ToolOutcome.FAILED, 502)
    wait = getattr(error, "retry_after", None)
    after = _RETRY_AFTER if wait is None else max(1, round(wait))
    return ToolResult(f"{effect}: {name} is not available. Try again in {after} s.", ToolOutcome.FAILED, 503, after)


def timed_out(effect: str) -> ToolResult:
    """A call whose time budget is used up."""
    text = f"{effect}: the request timed out. Try again in {_RETRY_AFTER} s."
    return ToolResult(text, ToolOutcome.FAILED, 504, _RETRY_AFTER)
