"""One record on its way through a lane."""

from collections.abc import Mapping
from typing import TypeAlias

from consumer.errors import DeadLetterReason
from consumer.stream.records import Partition, Record

Key: TypeAlias = tuple[str, int, bytes | int]
"""What is kept in order: topic, partition and key. A record without a key is a key of its own: its offset."""


class Item:
    """A delivered record with what has happened to it so far.

    Attributes:
        epoch: the assignment that delivered it; results for another epoch are dropped.
        attempts: charged attempts. waits: how often it was `NotYet`.
        first_failure, first_wait: when it first failed, and was first `NotYet`: seconds since the epoch, 0 for never.
        suspect: an open breaker gave an attempt back; if it then fails again, it is to blame, not the upstream.
        dead: why it must become a dead letter, once that is decided; error: the last failure in words.
        handler: the handler's name, and facts: what the job says of the record; known once the record is decoded.
    """

    __slots__ = (
        "attempts",
        "dead",
        "epoch",
        "error",
        "facts",
        "first_failure",
        "first_wait",
        "handler",
        "key",
        "partition",
        "record",
        "started",
        "suspect",
        "waits",
        "writes",
    )

    def __init__(self, record: Record, epoch: int) -> None:
        self.record = record
        self.epoch = epoch
        self.partition = Partition(record.topic, record.partition)
        self.key: Key = (record.topic, record.partition, record.offset if record.key is None else record.key)
        self.attempts = 0
        self.waits = 0
        self.writes = 0
        self.first_failure = 0.0
        self.first_wait = 0.0
        self.suspect = False
        self.started = 0.0
        self.dead: DeadLetterReason | None = None
        self.error = ""
        self.handler = "undecodable"
        self.facts: Mapping[str, str] = {}
