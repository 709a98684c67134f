"""A dead letter, and the record that it becomes when it is sent back. Pure.

A dead letter that was sent back is noted in the dead-letter topic itself, by a *redrive note*: a record in the same
partition with the header `dead-letter-redriven`. So retention removes both at about the same time, and the note does
not depend on committed offsets.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from consumer.errors import DeadLetterReason
from consumer.stream.dead_letter_writer import HEADER
from consumer.stream.records import Headers, Record
from schemas.codec import decode
from schemas.events import REPAIR_HEADER, REPLAY_HEADER
from schemas.timestamps import parse_timestamp

ATTEMPT_HEADER = "redrive-attempt"
"""How often a record has been sent back, as a decimal number."""
REPLAY = (REPLAY_HEADER, b"redrive")
NOTE_HEADER = HEADER + "redriven"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter without its value.

    Attributes:
        partition, offset: its position in the dead-letter topic.
        written: when it was written, seconds since the epoch.
        topic, topic_partition, topic_offset: the position of its record.
        event_type, event_id: "" if the value does not say.
        attempts: how often the record was tried; redrives: how often it had been sent back before.
        size: bytes of the value; truncated_from: bytes before it was truncated to fit, None if it is whole.
        empty: neither key nor value.
    """

    partition: int
    offset: int
    written: float
    reason: str
    event_type: str
    event_id: str
    topic: str
    topic_partition: int
    topic_offset: int
    attempts: int
    redrives: int
    error: str
    size: int
    truncated_from: int | None
    empty: bool

    @property
    def position(self) -> tuple[int, int]:
        """Partition and offset, which identify it."""
        return self.partition, self.offset

    @property
    def label(self) -> str:
        """`position` as text."""
        return f"{self.partition}:{self.offset}"


def parse_dead_letter(record: Record) -> DeadLetter | None:
    """The dead letter of a record; None if the record was not written by this project's engine."""

    def header(name: str) -> str:
        return record.header(HEADER + name) or ""

    truncated_from = record.header(HEADER + "truncated-from")
    try:
        return DeadLetter(
            partition=record.partition,
            offset=record.offset,
            written=record.timestamp / 1000,
            reason=header("reason"),
            event_type=_event_type(record.value),
            event_id=header("event-id"),
            topic=header("topic"),
            topic_partition=int(header("partition")),
            topic_offset=int(header("offset")),
            attempts=int(header("attempts")),
            redrives=int(record.header(ATTEMPT_HEADER) or 0),
            error=header("error"),
            size=len(record.value or b""),
            truncated_from=None if truncated_from is None else int(truncated_from),
            empty=record.header(HEADER + "null-value") is not None,
        )
    except ValueError:
        return None


def _event_type(value: bytes | None) -> str:
    try:
        event_type = decode(value).get("eventType")
    except ValueError:
        return ""
    return event_type if isinstance(event_type, str) else ""


def parse_redrive_note(record: Record) -> list[tuple[int, int]] | None:
    """The positions of the dead letters that a note marks as sent back; None if the record is not a note."""
    if record.header(NOTE_HEADER) is None:
        return None
    try:
        return [(record.partition, int(offset)) for offset in decode(record.value)["offsets"]]
    except (ValueError, LookupError, TypeError):
        return []


def build_redrive_note(offsets: Iterable[int]) -> tuple[bytes, Headers]:
    """Value and headers of the note that these dead letters, all of one partition, were sent back."""
    listed = list(offsets)
    return json.dumps({"offsets": listed}).encode("ascii"), [(NOTE_HEADER, str(len(listed)).encode())]


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters. An empty or None attribute selects all. Times in seconds since the epoch."""

    reasons: Collection[str] = ()
    event_types: Collection[str] = ()
    since: float | None = None
    until: float | None = None

    def __call__(self, letter: DeadLetter) -> bool:
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.event_types or letter.event_type in self.event_types)
            and (self.since is None or letter.written >= self.since)
            and (self.until is None or letter.written < self.until)
        )


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_time_or_age(text: str, now: float) -> float:
    """Seconds since the epoch of an ISO 8601 time (UTC without an offset), or of an age such as `90m`, `2h`, `7d`.

    Raises:
        ValueError: the text is neither.
    """
    if text[-1:] in _UNITS and text[:-1].isascii() and text[:-1].isdigit():
        return now - int(text[:-1]) * _UNITS[text[-1]]
    return parse_timestamp(text)


def redrive_blocker(letter: DeadLetter, sources: Collection[str]) -> str | None:
    """Why a dead letter cannot be sent back; None if it can.

    Args:
        sources: the topics that lanes read and that exist.
    """
    if letter.reason == DeadLetterReason.UNREADABLE:
        return "the Kafka client could not read its record: publish the event anew"
    if letter.truncated_from is not None:
        lost = letter.truncated_from - letter.size
        return f"the last {lost} of its {letter.truncated_from} bytes were cut off to fit: publish the event anew"
    if letter.empty:
        return "its record had neither key nor value"
    if letter.topic not in sources:
        return f"its topic {letter.topic} does not exist, or no lane reads it"
    return None


def redrive_headers(record: Record, redrives: int, new_repair: Callable[[], str] | None) -> Headers:
    """The headers of the record that is sent back: its own, and those that mark it as a replay.

    Args:
        redrives: how often it had been sent back before.
        new_repair: makes a new value of the header `repair`, so that Hindsight processes the comment again; None keeps
            the record's own.
    """
    replaced = {ATTEMPT_HEADER, REPLAY[0]} | ({REPAIR_HEADER} if new_repair else set())
    own = [(name, value) for name, value in record.headers if not name.startswith(HEADER) and name not in replaced]
    repair: Headers = [(REPAIR_HEADER, new_repair().encode())] if new_repair else []
    return [*own, (ATTEMPT_HEADER, str(redrives + 1).encode()), REPLAY, *repair]
