"""Every metric, with its help text and the closed set of values of each label.

No label holds a bank, company, agent, run, event id, pod or the text of an exception, so the number of series stays
small. Every counter starts at zero, because `increase()` misses a counter that is first seen at 1. `docs/metrics.md`
lists them all; `consumer.observability.prometheus` records the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import DeadLetterReason, Upstream
from consumer.exporter.snapshot import GroupState, OperationStatus, OperationType, Source
from consumer.handlers.results import SkipReason
from consumer.relay.hooks import RelayState
from consumer.stream.hooks import AttemptOutcome, BreakerReason, CommitResult, ParkReason, RebalanceKind
from consumer.tools.results import Tool, ToolOutcome

PREFIX = "paperclip_memory_"


class Kind(StrEnum):
    """A Prometheus metric type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Result(StrEnum):
    """How a request to an upstream ended (closed: a metric label)."""

    OK = "2xx"
    REDIRECTED = "3xx"  # never followed: the base URL is wrong
    REFUSED = "refused"  # our key was refused: 401, 402, Hindsight's 403
    REJECTED = "4xx"
    LIMITED = "429"
    FAILED = "5xx"
    TIMEOUT = "timeout"
    CONNECT = "connect"  # no connection: the server never saw the request
    BROKEN = "broken"  # the connection was lost before the response was complete: the server may have acted


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: without the prefix.
        labels: in order.
        buckets: upper bounds of a histogram, seconds.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


HANDLERS = ("recall", "run_end", "retain", "forget")
"""The handlers that do work."""
IGNORED, UNDECODABLE, OTHER = "ignored", "undecodable", "other"
"""Other values of the label `handler`: an ignored event type, an undecodable record, an unknown name."""
HANDLER_LABELS = (*HANDLERS, IGNORED, UNDECODABLE, OTHER)

_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
_AGES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)

EVENTS = Metric("events_total", Kind.COUNTER, "Attempts to handle a record, by outcome.", ("handler", "outcome"))
EVENT_DURATION = Metric("event_duration_seconds", Kind.HISTOGRAM, "Duration of an attempt.", ("handler",), _DURATIONS)
EVENT_AGE = Metric(
    "event_age_seconds",
    Kind.HISTOGRAM,
    "Time from the record's timestamp until it was finished: succeeded, skipped, failed or dead-lettered.",
    ("handler",),
    _AGES,
)
DEAD_LETTERS = Metric(
    "dead_letters_total", Kind.COUNTER, "Records written to the dead-letter topic.", ("handler", "reason")
)
SKIPPED = Metric("skipped_total", Kind.COUNTER, "Records skipped by a rule, by reason.", ("handler", "reason"))
REQUESTS = Metric(
    "upstream_requests_total",
    Kind.COUNTER,
    "Requests to Hindsight and Paperclip, by result.",
    ("upstream", "operation", "result"),
)
REQUEST_DURATION = Metric(
    "upstream_request_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of a request, whatever its result.",
    ("upstream", "operation"),
    _DURATIONS,
)
INFLIGHT = Metric("inflight_events", Kind.GAUGE, "Attempts in progress.", ("lane",))
BUFFERED = Metric("buffered_events", Kind.GAUGE, "Records delivered by Kafka and waiting to be started.", ("lane",))
PARKED = Metric("parked_events", Kind.GAUGE, "Records waiting for their next attempt, by reason.", ("lane", "reason"))
BREAKER_OPEN = Metric(
    "breaker_open",
    Kind.GAUGE,
    "1 while the lane starts no new records because of the upstream, else 0.",
    ("lane", "upstream", "reason"),
)
PAUSED = Metric("paused_partitions", Kind.GAUGE, "Partitions paused by backpressure.", ("topic",))
ASSIGNED = Metric("assigned_partitions", Kind.GAUGE, "Partitions assigned to this process.", ("topic",))
WAITING_DELAY = Metric(
    "waiting_partition_delay_seconds",
    Kind.GAUGE,
    "Age of the oldest event behind deletions that wait by design; 0 if there is none. Absent if nothing waits first.",
    ("topic", "partition"),
)
REBALANCES = Metric("rebalances_total", Kind.COUNTER, "Changes of the assignment, by kind.", ("lane", "kind"))
COMMITS = Metric(
    "commits_total",
    Kind.COUNTER,
    "Offset commits, by result; `unknown` is a commit that was cancelled or timed out.",
    ("lane", "result"),
)
EXPIRED = Metric(
    "expired_records_total", Kind.COUNTER, "Records that retention removed before they were read.", ("lane",)
)
POLL_FAILURES = Metric("poll_failures_total", Kind.COUNTER, "Polls that raised an error; polling continues.", ("lane",))
LAST_POLL = Metric(
    "last_poll_timestamp_seconds", Kind.GAUGE, "Time of the last poll (Unix time); 0 if there was none.", ("lane",)
)
LAST_COMMIT = Metric(
    "last_commit_timestamp_seconds", Kind.GAUGE, "Time of the last commit (Unix time); 0 if there was none.", ("lane",)
)
OLDEST_UNCOMMITTED = Metric(
    "oldest_uncommitted_seconds", Kind.GAUGE, "Age of the oldest record that is delivered but not committed.", ("lane",)
)
TOOL_CALLS = Metric("tool_calls_total", Kind.COUNTER, "Tool calls, by outcome.", ("tool", "outcome"))
TOOL_CALL_DURATION = Metric(
    "tool_call_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of a tool call, including authentication.",
    ("tool", "outcome"),
    _DURATIONS,
)
RELAY_PUBLISHED = Metric(
    "relay_published_total", Kind.COUNTER, "Paperclip events that Kafka has acknowledged.", ("topic",)
)
RELAY_LAG = Metric(
    "relay_lag_seconds",
    Kind.GAUGE,
    "Seconds since the furthest-behind company was fully read.",
    ("topic",),
)
PAPERCLIP_SKEW = Metric(
    "paperclip_clock_skew_seconds",
    Kind.GAUGE,
    "Seconds that Paperclip's clock is behind the relay's; 0 below 2 seconds. Times of runs are corrected by it.",
)
RELAY_COMPANIES = Metric(
    "relay_companies",
    Kind.GAUGE,
    "Companies that the relay follows, by the worse state of runs and comments.",
    ("state",),
)
KEY_EXPIRES = Metric(
    "paperclip_key_expires_timestamp_seconds",
    Kind.GAUGE,
    "End of the Paperclip key that this process uses (Unix time); 0 if it does not end or its end is not known.",
)
_PARTITION = ("group", "topic", "partition")
GROUP_LAG = Metric(
    "group_lag_records", Kind.GAUGE, "Records between the group's committed offset and the log end.", _PARTITION
)
GROUP_LAG_SECONDS = Metric(
    "group_lag_seconds",
    Kind.GAUGE,
    "Age of the first record that the group has not committed; 0 if there is none.",
    _PARTITION,
)
GROUP_COMMITTED = Metric("group_committed_offset", Kind.GAUGE, "Committed offset of the group.", _PARTITION)
LOG_END = Metric("log_end_offset", Kind.GAUGE, "Offset of the next record to be written.", ("topic", "partition"))
GROUP_WITHOUT_COMMIT = Metric(
    "group_partitions_without_commit",
    Kind.GAUGE,
    "Partitions in which the group has never committed.",
    ("group", "topic"),
)
GROUP_MEMBERS = Metric("group_members", Kind.GAUGE, "Members of the group.", ("group",))
GROUP_STATE = Metric("group_state", Kind.GAUGE, "1 for the current state of the group, else 0.", ("group", "state"))
DEAD_LETTER_DEPTH = Metric(
    "dead_letter_depth_records", Kind.GAUGE, "Records in the topic, including the markers of redriven ones.", ("topic",)
)
QUEUE_DEPTH = Metric(
    "hindsight_queue_depth", Kind.GAUGE, "Unfinished and failed operations of Hindsight.", ("operation_type", "status")
)
CONSOLIDATION_BACKLOG = Metric(
    "hindsight_consolidation_backlog", Kind.GAUGE, "Memories waiting for consolidation in Hindsight."
)
CONSOLIDATION_FAILED = Metric(
    "hindsight_consolidation_failed", Kind.GAUGE, "Memories whose consolidation in Hindsight failed permanently."
)
OLDEST_PENDING = Metric(
    "hindsight_oldest_pending_seconds", Kind.GAUGE, "Age of the oldest unfinished operation; 0 if there is none."
)
BANKS_KNOWN = Metric("hindsight_banks_known", Kind.GAUGE, "Banks in Hindsight.")
BANKS_OBSERVED = Metric(
    "hindsight_banks_observed",
    Kind.GAUGE,
    "Banks that the exporter inspects while the queue is not empty, without those that fail.",
)
SNAPSHOT = Metric(
    "snapshot_timestamp_seconds",
    Kind.GAUGE,
    "Time of the source's last answer (Unix time); 0 if there was none.",
    ("source",),
)
COLLECT_SUCCESS = Metric(
    "collect_success", Kind.GAUGE, "1 if the source answered the last request, else 0.", ("source",)
)
COLLECT_MISSING = Metric(
    "collect_missing", Kind.GAUGE, "Partitions and groups that the source gave no answer about.", ("source",)
)
COLLECT_DURATION = Metric(
    "collect_duration_seconds", Kind.GAUGE, "Duration of the last read of the source.", ("source",)
)
BUILD_INFO = Metric("build_info", Kind.GAUGE, "Always 1; the label is the running version.", ("version",))

METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of the above."""

_VALUES: dict[tuple[str, str], Sequence[str]] = {
    ("*", "handler"): HANDLER_LABELS,
    (EVENT_DURATION.name, "handler"): (*HANDLERS, OTHER),
    (EVENT_AGE.name, "handler"): (*HANDLERS, OTHER),
    (EVENTS.name, "outcome"): tuple(AttemptOutcome),
    (DEAD_LETTERS.name, "reason"): tuple(DeadLetterReason),
    (SKIPPED.name, "reason"): tuple(SkipReason),
    (PARKED.name, "reason"): tuple(ParkReason),
    (BREAKER_OPEN.name, "reason"): tuple(BreakerReason),
    (BREAKER_OPEN.name, "upstream"): tuple(Upstream),
    (REQUESTS.name, "result"): tuple(Result),
    ("*", "upstream"): (Upstream.HINDSIGHT, Upstream.PAPERCLIP),
    ("*", "operation"): ("the name of the request",),
    ("*", "lane"): ("recall", "retain"),
    ("*", "topic"): ("the lanes' topics",),
    (REBALANCES.name, "kind"): tuple(RebalanceKind),
    (COMMITS.name, "result"): tuple(CommitResult),
    ("*", "tool"): tuple(Tool),
    (TOOL_CALLS.name, "outcome"): tuple(ToolOutcome),
    (TOOL_CALL_DURATION.name, "outcome"): tuple(ToolOutcome),
    (RELAY_PUBLISHED.name, "topic"): ("the topics of runs and comments",),
    (RELAY_LAG.name, "topic"): ("the topics of runs and comments",),
    (RELAY_COMPANIES.name, "state"): tuple(RelayState),
    ("*", "group"): ("the lanes' groups",),
    ("*", "partition"): ("its number",),
    (DEAD_LETTER_DEPTH.name, "topic"): ("the dead-letter topic",),
    (GROUP_STATE.name, "state"): tuple(GroupState),
    ("*", "operation_type"): tuple(OperationType),
    ("*", "status"): tuple(OperationStatus),
    ("*", "source"): tuple(Source),
    ("*", "version"): ("the version of paperclip-memory",),
}


def label_values(metric: Metric, label: str) -> tuple[str, ...]:
    """All values of a label, or a description of them."""
    return tuple(_VALUES.get((metric.name, label)) or _VALUES["*", label])
