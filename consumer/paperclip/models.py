"""What Paperclip answers: its objects as JSON, and who a key belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from consumer.errors import DeadLetterReason, Permanent
from schemas.paperclip import Comment, Issue, Run, is_uuid
from schemas.timestamps import parse_timestamp

Json = dict[str, Any]
M = TypeVar("M", Run, Issue, Comment)


class PaperclipOperation(StrEnum):
    """A request to Paperclip (closed: a metric label)."""

    RUN = "run"
    ISSUE = "issue"
    COMMENT = "comment"
    AGENTS = "agents"
    HEALTH = "health"
    AUTHENTICATE = "authenticate"
    AUDIT = "audit"
    ISSUES = "issues"
    ACTIVITY = "activity"
    COMMENTS = "comments"
    RUNS = "runs"
    RUN_EVENTS = "run_events"
    PLUGINS = "plugins"
    CLOCK = "clock"
    KEY = "key"
    TOOL_CONNECTIONS = "tool_connections"


LOOKUPS = (
    PaperclipOperation.RUN,
    PaperclipOperation.ISSUE,
    PaperclipOperation.COMMENT,
    PaperclipOperation.AGENTS,
    PaperclipOperation.HEALTH,
    PaperclipOperation.AUTHENTICATE,
    PaperclipOperation.KEY,
    PaperclipOperation.TOOL_CONNECTIONS,
)
"""The requests of handlers and tools. The others are the relay's and the commands'."""


class KeyKind(StrEnum):
    """Whose key it is: an agent's (or a run's token), or a person's (or none, at a `local_trusted` server)."""

    AGENT = "agent"
    BOARD = "board"


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a key, and the companies that Paperclip shows to it. `agent_id` is None for a person."""

    kind: KeyKind
    company_ids: tuple[str, ...]
    agent_id: str | None = None


def is_forbidden(error: BaseException) -> bool:
    """Whether an error is Paperclip's 403."""
    return isinstance(error, Permanent) and error.reason is DeadLetterReason.FORBIDDEN


def path_uuid(text: str) -> str:
    """An id as it may stand in a URL. Raises `Permanent` if it is not a UUID: Paperclip would answer 500."""
    lower = text.lower()
    if not is_uuid(lower):
        raise Permanent("an id of Paperclip is not a UUID", reason=DeadLetterReason.INVALID)
    return lower


def query_string(values: Mapping[str, object]) -> str:
    """`?name=value&…`; values that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    return "?" + urlencode(given) if given else ""


# Parsers of JSON answers. Each may raise whatever comes of JSON of another shape.


def parse_model(model: type[M], id_: str, value: Any) -> M:
    """The object with this id."""
    parsed = model.model_validate(value)
    if parsed.id != id_:
        raise ValueError("another object")
    return parsed


def parse_object(id_: str, value: Any) -> Json:
    """The object with this id, as it was sent."""
    if value["id"] != id_:
        raise ValueError("another object")
    return dict(value)


def parse_optional(value: Any) -> Json | None:
    """An object or null."""
    return dict(value) if value is not None else None


def parse_rows(value: Any) -> list[Json]:
    """A list of objects."""
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [dict(row) for row in value]


def parse_audit_page(value: Any) -> tuple[list[Json], str | None]:
    """Rows of the audit feed, and the cursor of the next page."""
    return parse_rows(value["items"]), value["nextCursor"]


def parse_ids(value: Any) -> tuple[str, ...]:
    """The ids of a list of objects."""
    return tuple(_parse_uuid(row["id"]) for row in parse_rows(value))


def parse_agent(value: Any) -> Identity:
    """The agent that a key belongs to."""
    return Identity(KeyKind.AGENT, (_parse_uuid(value["companyId"]),), _parse_uuid(value["id"]))


def _parse_uuid(value: Any) -> str:
    lower = value.lower()
    if not is_uuid(lower):
        raise ValueError("not a UUID")
    return str(lower)


def parse_key_expiry(value: Any, key_id: str) -> float | None:
    """When the board key of this id expires, seconds since the epoch; None if it does not."""
    expires = {row["id"]: row["expiresAt"] for row in value}[key_id]
    return None if expires is None else parse_timestamp(expires)


def parse_release(value: Any) -> str | None:
    """The release in a health answer, whose `status` shows that it is Paperclip's; None if it names none."""
    _status, release = value["status"], value.get("version")
    return release if isinstance(release, str) else None
