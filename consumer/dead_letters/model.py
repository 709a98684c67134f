"""One dead letter: what its record says, and the record that it becomes when it is sent back. Pure.

A letter that was sent back is noted in the dead-letter topic itself, by a *note*: a record of the letter's partition
with the header `dead-letter-redriven`. So a letter and the word that it is settled live equally long, whatever becomes
of consumer groups.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

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
class Letter:
    """A dead letter without its value.

    Attributes:
        partition, offset: where it stands in the dead-letter topic.
        written: when it was written, seconds since the epoch.
        topic, topic_partition, topic_offset: where its record stood.
        event_type, event_id: "" where the value does not tell.
        attempts: how often the record was tried; redrives: how often it had been sent back before.
        size: bytes of the value; cut_from: how many there were before it was cut to fit, None if it is whole.
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
    cut_from: int | None
    empty: bool

    @property
    def place(self) -> tuple[int, int]:
        """What identifies it in the dead-letter topic."""
        return self.partition, self.offset

    @property
    def at(self) -> str:
        """`place` for people."""
        return f"{self.partition}:{self.offset}"


def read_letter(record: Record) -> Letter | None:
    """What a record of the dead-letter topic says; None if it is no dead letter of ours."""

    def header(name: str) -> str:
        return record.header(HEADER + name) or ""

    cut_from = record.header(HEADER + "truncated-from")
    try:
        return Letter(
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
            cut_from=None if cut_from is None else int(cut_from),
            empty=record.header(HEADER + "null-value") is not None,
        )
    except ValueError:
        return None


def _event_type(value: bytes | None) -> str:
    try:
        found = decode(value).get("eventType")
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""


def read_note(record: Record) -> list[tuple[int, int]] | None:
    """The places of the letters that a note calls sent back; None if the record is no note."""
    if record.header(NOTE_HEADER) is None:
        return None
    try:
        offsets = decode(record.value)["offsets"]
        return [(record.partition, int(offset)) for offset in offsets]
    except (ValueError, LookupError, TypeError):
        return []


def write_note(offsets: Iterable[int]) -> tuple[bytes, Headers]:
    """Value and headers of the note that these letters, all of one partition, are sent back."""
    listed = list(offsets)
    return json.dumps({"offsets": listed}).encode("ascii"), [(NOTE_HEADER, str(len(listed)).encode())]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are meant; what is empty or None filters nothing. Times in seconds since the epoch."""

    reasons: Collection[str] = ()
    event_types: Collection[str] = ()
    since: float | None = None
    until: float | None = None

    def __call__(self, letter: Letter) -> bool:
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.event_types or letter.event_type in self.event_types)
            and (self.since is None or letter.written >= self.since)
            and (self.until is None or letter.written < self.until)
        )


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def moment(text: str, now: float) -> float:
    """A time in seconds since the epoch: ISO 8601 (UTC unless it says otherwise), or an age such as `90m`, `2h`, `7d`.

    Raises:
        ValueError: it is neither.
    """
    if text[-1:] in _UNITS and text[:-1].isascii() and text[:-1].isdigit():
        return now - int(text[:-1]) * _UNITS[text[-1]]
    return parse_timestamp(text)


def obstacle(letter: Letter, sources: Collection[str]) -> str | None:
    """Why a letter cannot be sent back, in words; None if it can.

    Args:
        sources: the topics that lanes read and that exist.
    """
    if letter.cut_from is not None:
        lost = letter.cut_from - letter.size
        return f"the last {lost} of its {letter.cut_from} bytes were cut off to fit: publish the event anew"
    if letter.empty:
        return "its record had neither key nor value: there is nothing to send"
    if letter.topic not in sources:
        return f"it comes from topic {letter.topic}, which is not there, or no lane reads it now"
    return None


def revived_headers(record: Record, redrives: int, new_repair: Callable[[], str] | None) -> Headers:
    """The headers of the record that goes back: its own, and that it is a replay.

    Args:
        redrives: how often it had been sent back before.
        new_repair: makes a new text for the header `repair`, so that Hindsight works the comment again; None keeps the
            record's own.
    """
    ours = {ATTEMPT_HEADER, REPLAY[0]} | ({REPAIR_HEADER} if new_repair else set())
    own = [(name, value) for name, value in record.headers if not name.startswith(HEADER) and name not in ours]
    repair: Headers = [(REPAIR_HEADER, new_repair().encode())] if new_repair else []
    return [*own, (ATTEMPT_HEADER, str(redrives + 1).encode()), REPLAY, *repair]
