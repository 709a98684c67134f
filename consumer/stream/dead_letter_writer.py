"""Writes dead letters: the record's raw bytes, with what happened to it in headers."""

import traceback
from collections.abc import Awaitable, Callable
from pathlib import PurePath

from consumer.errors import HandlingError
from consumer.stream.records import Headers, WorkItem

HEADER = "dead-letter-"

Write = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[None]]
"""Writes (topic, key, value, headers) and returns once acknowledged; raises if it fails or does not fit."""


def describe_error(error: Exception) -> str:
    """An error as text for logs and dead letters; of a foreign error, which may quote a body, only type and place."""
    if isinstance(error, HandlingError):
        return str(error) or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return type(error).__name__ + place


def headers(item: WorkItem) -> list[tuple[str, bytes | None]]:
    """The record's own headers, then the dead letter's, as UTF-8 text. Times are milliseconds since the epoch."""
    record = item.record
    facts = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "reason": item.dead_letter_reason or "",
        "error": item.error[:500],
        "attempts": item.attempts,
        "first-failure": int(item.first_failure * 1000),
        "event-id": item.facts.get("event_id", ""),
    }
    own = [header for header in record.headers if not header[0].startswith(HEADER)]
    return own + [(HEADER + name, str(value).encode("utf-8", "replace")) for name, value in facts.items()]


async def write_dead_letter(item: WorkItem, topic: str, write: Write, too_large: type[Exception]) -> None:
    """Write a dead letter. A value that does not fit is truncated, and a header says so.

    Raises:
        Exception: whatever `write` raises but `too_large`; the record must wait.
    """
    value, extra = item.record.value, headers(item)
    if value is None and item.record.key is None:
        # Kafka stores such a record, but aiokafka refuses to write one.
        value, extra = b"", [*extra, (HEADER + "null-value", b"true")]
    while True:
        try:
            await write(topic, item.record.key, value, extra)
        except too_large:
            size = len(item.record.value or b"")
            if not value:
                raise
            value = value[: len(value) // 2]
            extra = [*headers(item), (HEADER + "truncated-from", str(size).encode())]
        else:
            return
