"""Paperclip's times, as text and as seconds since the epoch."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def instant(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time; without an offset it is UTC. Raises `ValueError`."""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def iso(seconds: float) -> str:
    """ISO 8601 in UTC to the millisecond, as Paperclip writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(text: str) -> float:
    """Seconds since the epoch of a `Date` header. Raises `ValueError`."""
    return parsedate_to_datetime(text).timestamp()
