"""Engine events for observers. The engine knows neither Prometheus nor structlog: adapters implement a `Hook`.

A `Hook` is called for each event; it must neither block nor raise. `LaneState` is a snapshot of a lane for gauges and
health checks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from consumer.errors import DeadLetterReason, Upstream
from consumer.handlers.results import SkipReason
from consumer.stream.records import Partition


class AttemptOutcome(StrEnum):
    """How an attempt at a record ended. Values of the metric label `outcome`."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    IGNORED = "ignored"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    FAILED = "failed"


class ParkReason(StrEnum):
    """Why a key is parked. Values of a metric label."""

    RETRY = "retry"
    NOT_YET = "not_yet"
    DEAD_LETTER_UNAVAILABLE = "dead_letter_unavailable"


class BreakerReason(StrEnum):
    """Why a breaker holds the lane back. Values of a metric label."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    FAILING = "failing"
    THROTTLED = "throttled"


class CommitResult(StrEnum):
    """How a commit ended. A cancelled or timed-out commit is unknown, not failed. Values of a metric label."""

    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class RebalanceKind(StrEnum):
    """How the assignment changed. Values of a metric label."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """An attempt at a record ended.

    Attributes:
        duration: seconds that the attempt took.
        age: seconds from the record's timestamp until now.
        reason: of a skip, a failure, a retry or a dead letter.
        delay: seconds until the next attempt, for `retried`.
        error: text without bodies and keys; "" if none.
        facts: the job's log fields (event id, event type, run or comment id), with topic, partition and offset.
    """

    lane: str
    handler: str
    outcome: AttemptOutcome
    duration: float
    age: float
    attempts: int
    reason: SkipReason | Upstream | DeadLetterReason | ParkReason | None = None
    delay: float = 0.0
    error: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitFinished:
    """A commit of offsets for this many partitions ended."""

    lane: str
    result: CommitResult
    partitions: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Partitions were assigned or taken away. `drained`: all records in flight ended within the drain timeout."""

    lane: str
    kind: RebalanceKind
    partitions: int
    seconds: float = 0.0
    drained: bool = True


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A breaker opened or closed."""

    lane: str
    upstream: Upstream
    reason: BreakerReason
    opened: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    """Retention deleted records before they were read."""

    lane: str
    topic: str
    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class PollFailed:
    """The consumer raised; polling goes on."""

    lane: str
    error: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """The watchdog saw no progress. `stack` shows where the task hangs."""

    lane: str
    seconds: float
    stack: str


EngineEvent = AttemptFinished | CommitFinished | Rebalanced | BreakerChanged | RecordsExpired | PollFailed | Stalled
Hook = Callable[[EngineEvent], None]


@dataclass(frozen=True, slots=True)
class LaneState:
    """A snapshot of a lane. Times are seconds since the epoch, 0 for never; counts per topic are keyed by topic name.

    Attributes:
        breakers: reasons of the breakers that hold the lane back.
        oldest_uncommitted: age in seconds of the oldest unfinished record.
        oldest_in_flight: seconds that the longest-running attempt has taken.
        joined: whether the member ever had an assignment (an empty one counts: a standby).
        rebalancing: whether a rebalance is in progress.
        waiting: partitions whose first unfinished record waits by design, with the age in seconds of the oldest
            unfinished record that does not.
    """

    lane: str
    in_flight: int
    buffered: int
    parked: Mapping[ParkReason, int]
    breakers: Mapping[Upstream, BreakerReason]
    paused: Mapping[str, int]
    assigned: Mapping[str, int]
    last_poll: float
    last_commit: float
    oldest_uncommitted: float
    oldest_in_flight: float
    joined: bool
    rebalancing: bool
    waiting: Mapping[Partition, float] = field(default_factory=dict)


def by_topic(partitions: Iterable[Partition]) -> dict[str, int]:
    """How many partitions of each topic."""
    return dict(Counter(partition.topic for partition in partitions))
