"""Snapshots of Kafka and Hindsight, as immutable values, and the result of the last poll."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from consumer.exporter.lag import Lag
from consumer.stream.records import Partition

T = TypeVar("T")


class Source(StrEnum):
    """A polled system (closed: a metric label)."""

    KAFKA = "kafka"
    HINDSIGHT = "hindsight"


class GroupState(StrEnum):
    """The state of a consumer group (closed: a metric label)."""

    STABLE = "stable"
    EMPTY = "empty"
    PREPARING_REBALANCE = "preparing_rebalance"
    COMPLETING_REBALANCE = "completing_rebalance"
    DEAD = "dead"  # also a group that never existed
    OTHER = "other"


class OperationType(StrEnum):
    """The type of an operation of Hindsight (closed: a metric label)."""

    RETAIN = "retain"
    BATCH_RETAIN = "batch_retain"
    FILE_CONVERT_RETAIN = "file_convert_retain"
    CONSOLIDATION = "consolidation"
    REFRESH_MENTAL_MODEL = "refresh_mental_model"
    GRAPH_MAINTENANCE = "graph_maintenance"
    VECTOR_INDEX_MAINTENANCE = "vector_index_maintenance"
    WEBHOOK_DELIVERY = "webhook_delivery"
    OTHER = "other"
    ALL = "all"  # `/stats` does not tell the types apart


class OperationStatus(StrEnum):
    """The status of an unfinished or failed operation of Hindsight (closed: a metric label)."""

    PENDING = "pending"
    PROCESSING = "processing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A consumer group.

    Attributes:
        topics: the topics that it reads, including missing ones, which have no lag.
        last_commit: time of the last commit, seconds since the epoch; None if there was none or its time is unknown.
    """

    name: str
    topics: tuple[str, ...]
    members: int
    state: GroupState
    lags: tuple[Lag, ...]
    last_commit: float | None = None

    def without_commit(self, topic: str) -> int:
        """How many partitions of a topic have no commit of the group."""
        return sum(lag.committed is None for lag in self.lags if lag.partition.topic == topic)


@dataclass(frozen=True, slots=True)
class KafkaSnapshot:
    """Our groups and topics in Kafka.

    Attributes:
        ends: log end offset of each partition of the topics that the groups read.
        dead_letters: how many records each existing dead-letter topic holds.
        missing: partitions and groups that did not answer, and why: a partition may have no leader.
    """

    groups: tuple[GroupSnapshot, ...]
    ends: Mapping[Partition, int]
    dead_letters: Mapping[str, int]
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Hindsight's unfinished work.

    Attributes:
        operations: asynchronous operations by type and status.
        consolidation: memories waiting for consolidation; consolidation_failed: those for which it failed permanently.
    """

    operations: Mapping[tuple[OperationType, OperationStatus], int]
    consolidation: int
    consolidation_failed: int

    def total(self, *statuses: OperationStatus) -> int:
        """Operations with any of these statuses."""
        return sum(count for (_, status), count in self.operations.items() if status in statuses)


@dataclass(frozen=True, slots=True)
class HindsightSnapshot:
    """Hindsight's queue.

    Attributes:
        origin: where the backlog was read: `/metrics`, or `/stats` of the observed banks.
        oldest_pending: age in seconds of the oldest unfinished operation of the observed banks; 0 if there is none.
        banks_known, banks_observed: how many banks exist, and how many of the `exporter_banks` most recent were read.
    """

    origin: str
    backlog: Backlog
    oldest_pending: float
    banks_known: int
    banks_observed: int


@dataclass(frozen=True, slots=True)
class LastPoll(Generic[T]):
    """The last poll of a source.

    Attributes:
        snapshot: None if the poll failed: an older snapshot may be outdated.
        at: time of the last successful poll, seconds since the epoch; 0 if there was none.
        duration: of the last poll, seconds.
        error: why the last poll failed; "" if it succeeded, and before the first.
    """

    snapshot: T | None = None
    at: float = 0.0
    duration: float = 0.0
    error: str = ""

    def fresh(self, now: float, max_age: float) -> T | None:
        """The snapshot, unless it is older than `max_age` seconds."""
        return self.snapshot if now - self.at <= max_age else None
