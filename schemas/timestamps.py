"""Timestamps, as text and as seconds since the epoch."""

from datetime import UTC, datetime


def parse_timestamp(text: str) -> float:
    """Return the seconds since the epoch of an ISO 8601 timestamp; without an offset it is UTC.

    Raises:
        ValueError: the text is not a timestamp.
    """
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def format_timestamp(seconds: float, precision: str = "milliseconds") -> str:
    """Return a timestamp in ISO 8601 and UTC, to the millisecond as Paperclip writes it, or to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
