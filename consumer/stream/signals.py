"""What the engine tells the world, as data. It knows neither Prometheus nor structlog: adapters take a `Signal`.

Two ways out: a `Notify` is called for what happens (it must not block and must not raise), and `LaneState` says how a
lane stands when someone looks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from consumer.errors import DeadLetterReason, Upstream
from consumer.handlers.results import FailReason, SkipReason


class Ending(StrEnum):
    """How one attempt at a record ended (closed: the metric label `outcome`)."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    IGNORED = "ignored"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    FAILED = "failed"


class ParkReason(StrEnum):
    """Why a key is parked (closed: a metric label)."""

    RETRY = "retry"
    NOT_YET = "not_yet"
    DEAD_LETTER_UNAVAILABLE = "dead_letter_unavailable"


class BreakerReason(StrEnum):
    """Why a breaker is open (closed: a metric label)."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    FAILING = "failing"
    SLOWED = "slowed"


class CommitResult(StrEnum):
    """How a commit ended: a cancelled or timed-out one is unknown, not failed (closed: a metric label)."""

    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class RebalanceKind(StrEnum):
    """What the group did to us (closed: a metric label)."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt at a record ended.

    Attributes:
        reason: of a skip, a failure or a dead letter.
        duration: seconds of this attempt; age: seconds from the record's timestamp to now.
        delay: seconds until the next attempt, for `retried`.
        error: for people, with no body and no key in it; "" if none.
        facts: what the job said of the record (event id, type, run or comment id), with topic, partition and offset.
    """

    lane: str
    handler: str
    ending: Ending
    duration: float
    age: float
    attempts: int
    reason: SkipReason | FailReason | DeadLetterReason | ParkReason | None = None
    delay: float = 0.0
    error: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A commit ended; `offsets`: how many partitions it named."""

    lane: str
    result: CommitResult
    offsets: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Partitions came or went; `drained` says whether all in-flight records ended within the drain time-out."""

    lane: str
    kind: RebalanceKind
    partitions: int
    seconds: float = 0.0
    drained: bool = True


@dataclass(frozen=True, slots=True)
class BreakerMoved:
    """A breaker opened or closed."""

    lane: str
    upstream: Upstream
    reason: BreakerReason
    opened: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Retention removed records before they were read."""

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
class Stuck:
    """The watchdog saw no progress; `stack` is where the task hangs."""

    lane: str
    seconds: float
    stack: str


Signal = Attempted | CommitEnded | Rebalanced | BreakerMoved | Overtaken | PollFailed | Stuck
Notify = Callable[[Signal], None]


@dataclass(frozen=True, slots=True)
class LaneState:
    """How a lane stands now. Times are seconds since the epoch, 0 for never; counts per topic are by topic name.

    Attributes:
        breakers: open breakers and why.
        oldest_uncommitted: age in seconds of the oldest delivered record that is not committed.
        oldest_in_flight: seconds that the longest-running attempt has taken.
        joined: whether the member has, or has had, an assignment (even an empty one: a standby).
        rebalancing: whether a rebalance is under way.
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
