"""A Kafka record as the engine sees it, and its state on the way through a lane."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from consumer.errors import DeadLetterReason

Key: TypeAlias = tuple[str, int, bytes | int]
"""The unit of ordering: topic, partition and key. A record without any key has its own: its offset."""


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""A record's headers in order; names can repeat."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record. `timestamp` is in milliseconds since the epoch. A header's value may be None.

    `unreadable` says why the Kafka client could not read it; key, value and headers are then missing.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    unreadable: str = ""

    @property
    def size(self) -> int:
        """Bytes of value, key and headers."""
        size = len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    def header(self, name: str) -> str | None:
        """The text of the last header of this name; None if it is missing or has no value."""
        for key, value in reversed(self.headers):
            if key == name:
                return None if value is None else value.decode("utf-8", "replace")
        return None


FallbackKey: TypeAlias = Callable[[Record], bytes | None]
"""Derives a key from the value of a record that has none; None if the value has none either."""


class WorkItem:
    """A delivered record and its processing state.

    Attributes:
        epoch: the assignment that delivered it. Results of another epoch are dropped.
        attempts: failures charged to the record.
        not_yet_count: how often the handler raised `NotYet`; waited: seconds that it was parked for that.
        write_attempts: how often writing its dead letter failed.
        first_failure: seconds since the epoch, 0 for never.
        exempt_from_breaker: an open breaker refunded an attempt. Further failures count against the record, not
            against the upstream.
        seen_successes: the count of the upstream's successes when it was last down for this record; None for never.
        waiting: whether it is parked, or due, after `NotYet`.
        started: when the current attempt started.
        dead_letter_reason: set once the record must become a dead letter.
        error: the last failure as text.
        handler, facts: handler name and log fields, known once the record is decoded.
    """

    __slots__ = (
        "attempts",
        "dead_letter_reason",
        "epoch",
        "error",
        "exempt_from_breaker",
        "facts",
        "first_failure",
        "handler",
        "key",
        "not_yet_count",
        "partition",
        "record",
        "seen_successes",
        "started",
        "waited",
        "waiting",
        "write_attempts",
    )

    def __init__(self, record: Record, epoch: int, fallback_key: bytes | None = None) -> None:
        self.record = record
        self.epoch = epoch
        self.partition = Partition(record.topic, record.partition)
        key = record.key if record.key is not None else fallback_key
        self.key: Key = (record.topic, record.partition, key if key is not None else record.offset)
        self.attempts = 0
        self.not_yet_count = 0
        self.waited = 0.0
        self.waiting = False
        self.write_attempts = 0
        self.first_failure = 0.0
        self.exempt_from_breaker = False
        self.seen_successes: int | None = None
        self.started = 0.0
        self.dead_letter_reason: DeadLetterReason | None = None
        self.error = ""
        self.handler = "undecodable"
        self.facts: Mapping[str, str] = {}

    @property
    def has_history(self) -> bool:
        """Whether there is anything to carry over to another assignment."""
        return bool(self.first_failure)

    def carry_over(self, earlier: "WorkItem") -> None:
        """Continue where the same record stood in an earlier assignment."""
        self.attempts = earlier.attempts
        self.not_yet_count = earlier.not_yet_count
        self.waited = earlier.waited
        self.first_failure = earlier.first_failure
        self.exempt_from_breaker = earlier.exempt_from_breaker
        self.seen_successes = earlier.seen_successes
