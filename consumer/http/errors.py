"""What an answer that is no success means: pure, total, and the one place where DESIGN's rule for errors stands."""

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import Reply, SendError, TimedOut, Unreachable

_NAMES = {Upstream.HINDSIGHT: "Hindsight", Upstream.PAPERCLIP: "Paperclip", Upstream.KAFKA: "Kafka"}
_OWN_404 = {Upstream.HINDSIGHT: ("detail", "Not Found"), Upstream.PAPERCLIP: ("error", "API route not found")}
"""Where each says what is missing, and what it says when it is the route."""

_PASSING = {408, 409, 425, 429}
_LONGEST_WAIT = 86_400.0
_KEY_USELESS = "RESPONSIBLE_USER_UNAVAILABLE"  # Paperclip's 403 to a key whose user is gone, whatever is asked
_FIELD = re.compile(r"[A-Za-z0-9_]{1,40}")


def classify(answer: Reply | SendError, upstream: Upstream, about: str, now: float) -> HandlingError:
    """The error that an answer amounts to.

    Args:
        answer: a reply that the caller cannot use (a 2xx too, if its body is not what was promised), or why none came.
        about: the operation and the base URL, for the message.
        now: seconds since the epoch; for a `Retry-After` that is a date.
    """
    name = _NAMES[upstream]
    if isinstance(answer, SendError):
        return _unanswered(answer, upstream, f"{name}: {about}")
    said = f"{name} answered {answer.status}: {about}"
    status = answer.status
    if _refused(answer, upstream):
        message = f"{name} refuses our key with {status}: {about}"
        return UpstreamDown(message, upstream=upstream, kind=DownKind.REFUSED)
    if status == 404 and missing(answer, upstream) is None:
        message = f"{said}, but not in {name}'s words: a wrong base URL, or a proxy without its server"
        return Transient(message, upstream=upstream, retry_after=retry_after(answer, now))
    if 300 <= status < 500 and status not in _PASSING:
        return Permanent(said + _fault(answer), upstream=upstream, reason=_reason(status, upstream))
    if 200 <= status < 300:
        said += f", but not with what {name} answers: a proxy's page?"
    return Transient(said, upstream=upstream, retry_after=retry_after(answer, now))


def missing(reply: Reply, upstream: Upstream) -> str | None:
    """What the upstream itself says is missing (`Comment not found`).

    None when a 404 is not its own: a proxy's page, or a route it does not have. Neither says that a thing is gone.
    """
    field, no_route = _OWN_404[upstream]
    said = _member(reply.body, field)
    return said if isinstance(said, str) and said != no_route else None


def retry_after(reply: Reply, now: float) -> float | None:
    """Seconds that `Retry-After` asks for, at most a day; a date counts from the server's own clock if it told it."""
    value = reply.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_WAIT)
    until = _date(value)
    if until is None:
        return None
    since = _date(reply.headers.get("date", "")) or datetime.fromtimestamp(now, UTC)
    return min(max(0.0, (until - since).total_seconds()), _LONGEST_WAIT)


def _unanswered(error: SendError, upstream: Upstream, about: str) -> HandlingError:
    if isinstance(error, Unreachable):
        return UpstreamDown(f"{about}: no connection: {error}", upstream=upstream, kind=DownKind.UNREACHABLE)
    if isinstance(error, TimedOut):
        return Transient(f"{about}: timed out: {error}", upstream=upstream)
    return Transient(f"{about}: the connection broke: {error}", upstream=upstream)


def _refused(reply: Reply, upstream: Upstream) -> bool:
    if reply.status == 403:
        return upstream is Upstream.HINDSIGHT or _member(reply.body, "code") == _KEY_USELESS
    return reply.status in (401, 402)


def _reason(status: int, upstream: Upstream) -> DeadLetterReason:
    if status == 413:
        return DeadLetterReason.TOO_LARGE
    if status == 403 and upstream is Upstream.PAPERCLIP:
        return DeadLetterReason.FORBIDDEN
    return DeadLetterReason.REJECTED


def _fault(reply: Reply) -> str:
    """Where FastAPI's validation found fault (`body.items.0.content value_error`), never what stood there."""
    details = _member(reply.body, "detail")
    found = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    faults = [f"{_path(detail.get('loc'))} {_word(detail.get('type'))}" for detail in found[:3]]
    return f" ({', '.join(faults)})" if faults else ""


def _path(location: object) -> str:
    return ".".join(_word(part) for part in location) if isinstance(location, list) else "?"


def _word(part: object) -> str:
    return str(part) if _FIELD.fullmatch(str(part)) else "?"


def _member(body: bytes, name: str) -> Any:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
