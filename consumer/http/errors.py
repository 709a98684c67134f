"""Maps failed HTTP exchanges to errors. Pure."""

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from consumer.errors import DeadLetterReason, DownKind, HandlingError, Permanent, Transient, Upstream, UpstreamDown
from consumer.http.transport import ConnectError, RequestTimeout, Response, ResponseTooLarge, TransportError

_NAMES = {Upstream.HINDSIGHT: "Hindsight", Upstream.PAPERCLIP: "Paperclip", Upstream.KAFKA: "Kafka"}
_OWN_404 = {Upstream.HINDSIGHT: ("detail", "Not Found"), Upstream.PAPERCLIP: ("error", "API route not found")}
"""The field of a 404's body that names what is missing, and its text when the route itself is unknown."""

_PASSING = {408, 409, 425, 429}
_LONGEST_WAIT = 86_400.0
_KEY_USELESS = "RESPONSIBLE_USER_UNAVAILABLE"  # Paperclip's 403 to a key whose user is gone, whatever is asked
_FIELD = re.compile(r"[A-Za-z0-9_]{1,40}")


def classify(answer: Response | TransportError, upstream: Upstream, about: str, now: float) -> HandlingError:
    """The error for a failed exchange.

    Args:
        answer: the transport's error, or a response that the caller cannot use: an error status, or a 2xx with an
            unexpected body.
        about: the operation and the base URL, for the message.
        now: seconds since the epoch, for a `Retry-After` that is a date.
    """
    name = _NAMES[upstream]
    if isinstance(answer, TransportError):
        return _unanswered(answer, upstream, f"{name}: {about}")
    message = f"{name} answered {answer.status}: {about}"
    status = answer.status
    if _refused(answer, upstream):
        message = f"{name} refuses our key with {status}: {about}"
        return UpstreamDown(message, upstream=upstream, kind=DownKind.REFUSED)
    if status == 404 and missing(answer, upstream) is None:
        message = f"{message}, but the body is not {name}'s: wrong base URL, or a proxy whose server is down"
        return Transient(message, upstream=upstream, retry_after=retry_after(answer, now))
    if 300 <= status < 500 and status not in _PASSING:
        return Permanent(message + _fault(answer), upstream=upstream, reason=_reason(status, upstream))
    if 200 <= status < 300:
        message += f", but the body is not {name}'s: a proxy's page?"
    return Transient(message, upstream=upstream, retry_after=retry_after(answer, now))


def missing(response: Response, upstream: Upstream) -> str | None:
    """The text of a 404 that comes from the upstream itself and names a missing object (`Comment not found`).

    None for a proxy's 404 and for an unknown route: neither says that the object is gone.
    """
    field, no_route = _OWN_404[upstream]
    text = _member(response.body, field)
    return text if isinstance(text, str) and text != no_route else None


def retry_after(response: Response, now: float) -> float | None:
    """Seconds that `Retry-After` asks for, at most a day. A date is relative to the server's `Date`, else to `now`."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_WAIT)
    until = parse_date(value)
    if until is None:
        return None
    since = parse_date(response.headers.get("date", "")) or datetime.fromtimestamp(now, UTC)
    return min(max(0.0, (until - since).total_seconds()), _LONGEST_WAIT)


def _unanswered(error: TransportError, upstream: Upstream, about: str) -> HandlingError:
    if isinstance(error, ConnectError):
        return UpstreamDown(f"{about}: no connection: {error}", upstream=upstream, kind=DownKind.UNREACHABLE)
    if isinstance(error, ResponseTooLarge):
        return Permanent(f"{about}: {error}", upstream=upstream, reason=DeadLetterReason.TOO_LARGE)
    if isinstance(error, RequestTimeout):
        return Transient(f"{about}: timed out: {error}", upstream=upstream)
    return Transient(f"{about}: the connection broke: {error}", upstream=upstream)


def _refused(response: Response, upstream: Upstream) -> bool:
    if response.status == 403:
        return upstream is Upstream.HINDSIGHT or _member(response.body, "code") == _KEY_USELESS
    return response.status in (401, 402)


def _reason(status: int, upstream: Upstream) -> DeadLetterReason:
    if status == 413:
        return DeadLetterReason.TOO_LARGE
    if status == 403 and upstream is Upstream.PAPERCLIP:
        return DeadLetterReason.FORBIDDEN
    return DeadLetterReason.REJECTED


def _fault(response: Response) -> str:
    """The fields that FastAPI's validation rejected (`body.items.0.content value_error`), never their values."""
    details = _member(response.body, "detail")
    entries = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    faults = [f"{_path(detail.get('loc'))} {_word(detail.get('type'))}" for detail in entries[:3]]
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


def parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
