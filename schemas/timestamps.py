"""Timestamps, as text and as seconds since the epoch."""

from datetime import UTC, datetime


def parse_timestamp(text: str) -> float:
    """Return the seconds since the epoch of an ISO 8601 timestamp; without an offset it is UTC.

    Raises:
        ValueError: the text is not a timestamp.
    """
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def format_timestamp(seconds: float) -> str:
    """Return a timestamp in ISO 8601, in UTC and to the millisecond, as Paperclip writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
