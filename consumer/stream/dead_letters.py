"""Dead letters: the record as it was, with what happened to it in headers, acknowledged before its offset is done."""

from collections.abc import Awaitable, Callable, Sequence

from consumer.stream.items import Item

HEADER = "dead-letter-"

Headers = Sequence[tuple[str, bytes | None]]

Write = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[None]]
"""Writes (topic, key, value, headers) and returns when it is acknowledged; raises `RecordTooLarge` or anything else."""


def headers(item: Item) -> list[tuple[str, bytes | None]]:
    """The record's own headers, then ours, all text in UTF-8. Times are milliseconds since the epoch."""
    record = item.record
    facts = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "reason": item.dead or "",
        "error": item.error[:500],
        "attempts": item.attempts,
        "first-failure": int(item.first_failure * 1000),
        "event-id": item.facts.get("event_id", ""),
    }
    own = [header for header in record.headers if not header[0].startswith(HEADER)]
    return own + [(HEADER + name, str(value).encode("utf-8", "replace")) for name, value in facts.items()]


async def write_dead_letter(item: Item, topic: str, write: Write, too_large: type[Exception]) -> None:
    """Write a dead letter; one that does not fit is cut, and says so.

    Raises:
        Exception: whatever `write` raises but `too_large`: the record must wait.
    """
    value, extra = item.record.value, headers(item)
    if value is None and item.record.key is None:
        # Kafka holds such a record, and aiokafka refuses to write one.
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
