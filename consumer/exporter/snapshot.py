"""What the sources saw, as values that never change; and the place where a scrape finds the last of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from consumer.exporter.lag import Lag
from consumer.stream.records import Partition

T = TypeVar("T")


class Source(StrEnum):
    """Where gauges come from (closed: a metric label)."""

    KAFKA = "kafka"
    HINDSIGHT = "hindsight"


class GroupState(StrEnum):
    """The state of a consumer group (closed: a metric label)."""

    STABLE = "stable"
    EMPTY = "empty"
    PREPARING_REBALANCE = "preparing_rebalance"
    COMPLETING_REBALANCE = "completing_rebalance"
    DEAD = "dead"  # also a group that never was
    OTHER = "other"


class OperationType(StrEnum):
    """What Hindsight works on (closed: a metric label)."""

    RETAIN = "retain"
    BATCH_RETAIN = "batch_retain"
    FILE_CONVERT_RETAIN = "file_convert_retain"
    CONSOLIDATION = "consolidation"
    REFRESH_MENTAL_MODEL = "refresh_mental_model"
    GRAPH_MAINTENANCE = "graph_maintenance"
    VECTOR_INDEX_MAINTENANCE = "vector_index_maintenance"
    WEBHOOK_DELIVERY = "webhook_delivery"
    OTHER = "other"
    ALL = "all"  # `/stats` counts all types as one


class OperationStatus(StrEnum):
    """How an operation of Hindsight stands, if it is not over (closed: a metric label)."""

    PENDING = "pending"
    PROCESSING = "processing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A consumer group.

    Attributes:
        topics: what it reads, also a topic that does not exist now and so has no lag.
        last_commit: when it last committed, seconds since the epoch; None for never, or if the committer did not say.
    """

    name: str
    topics: tuple[str, ...]
    members: int
    state: GroupState
    lags: tuple[Lag, ...]
    last_commit: float | None = None

    def without_commit(self, topic: str) -> int:
        """How many partitions of a topic the group has never committed in."""
        return sum(lag.committed is None for lag in self.lags if lag.partition.topic == topic)


@dataclass(frozen=True, slots=True)
class KafkaSeen:
    """What Kafka says of our groups.

    Attributes:
        ends: log end of each partition of each topic that a group reads.
        dead_letters: how many records each dead-letter topic that exists holds.
    """

    groups: tuple[GroupSeen, ...]
    ends: Mapping[Partition, int]
    dead_letters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in Hindsight.

    Attributes:
        operations: asynchronous operations by type and status.
        consolidation: memories that wait for it; consolidation_failed: for which it failed for good.
    """

    operations: Mapping[tuple[OperationType, OperationStatus], int]
    consolidation: int
    consolidation_failed: int

    def total(self, *statuses: OperationStatus) -> int:
        """Operations with any of these statuses."""
        return sum(count for (_, status), count in self.operations.items() if status in statuses)


@dataclass(frozen=True, slots=True)
class HindsightSeen:
    """What Hindsight says of its queue.

    Attributes:
        origin: which of its answers the backlog comes from: `/metrics`, or `/stats` of the observed banks.
        oldest_pending: age in seconds of the oldest operation of the observed banks that is not over; 0 if all are.
        banks_known, banks_observed: how many banks there are, and how many of them our bound lets us look into.
    """

    origin: str
    backlog: Backlog
    oldest_pending: float
    banks_known: int
    banks_observed: int


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The last look at a source.

    Attributes:
        seen: None if it failed: what was true before may be so no longer.
        at: when a look last succeeded, seconds since the epoch; 0 for never.
        duration: seconds that the last look took.
        error: why it failed; "" if it did not, and before the first.
    """

    seen: T | None = None
    at: float = 0.0
    duration: float = 0.0
    error: str = ""

    def fresh(self, now: float, max_age: float) -> T | None:
        """What was seen, unless it is older than `max_age` seconds."""
        return self.seen if now - self.at <= max_age else None
