"""The one list of metric names: what a scrape can hold, with every label's closed set of values.

No label ever holds a bank, company, agent, run, event id, pod or the text of an exception: series stay few, and every
counter exists at zero from the start, since `increase()` misses one that is first seen at 1. `docs/metrics.md` is
`metrics_table()`; `consumer.observability.recorder` gives the metrics their values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import DeadLetterReason, Upstream
from consumer.exporter.snapshot import GroupState, OperationStatus, OperationType, Source
from consumer.handlers.outcomes import SkipReason
from consumer.relay.signals import RelayState
from consumer.stream.hooks import AttemptOutcome, BreakerReason, CommitResult, ParkReason, RebalanceKind
from consumer.tools.answers import Tool, ToolOutcome

PREFIX = "paperclip_memory_"


class Kind(StrEnum):
    """The type of a metric, as Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Result(StrEnum):
    """How a request to an upstream ended (closed: a metric label)."""

    OK = "2xx"
    REDIRECTED = "3xx"  # never followed: a wrong base URL
    REFUSED = "refused"  # our key: 401, 402, Hindsight's 403
    REJECTED = "4xx"
    LIMITED = "429"
    FAILED = "5xx"
    TIMEOUT = "timeout"
    CONNECT = "connect"  # no connection: the server did not see the request
    BROKEN = "broken"  # the connection ended inside the reply: the server may have acted


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
"""In a handler's place: an event type that means nothing here; a record that is no event; a name not known."""
HANDLER_LABELS = (*HANDLERS, IGNORED, UNDECODABLE, OTHER)

_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
_AGES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)

EVENTS = Metric("events_total", Kind.COUNTER, "Attempts at records, by how they ended.", ("handler", "outcome"))
EVENT_DURATION = Metric(
    "event_duration_seconds", Kind.HISTOGRAM, "How long an attempt of a handler took.", ("handler",), _DURATIONS
)
EVENT_AGE = Metric(
    "event_age_seconds",
    Kind.HISTOGRAM,
    "From the record's timestamp until it was done with: succeeded, skipped, failed or dead-lettered.",
    ("handler",),
    _AGES,
)
DEAD_LETTERS = Metric(
    "dead_letters_total", Kind.COUNTER, "Records that went to the dead-letter topic.", ("handler", "reason")
)
SKIPPED = Metric("skipped_total", Kind.COUNTER, "Records that the rules gave no effect.", ("handler", "reason"))
REQUESTS = Metric(
    "upstream_requests_total", Kind.COUNTER, "Requests, by how they ended.", ("upstream", "operation", "result")
)
REQUEST_DURATION = Metric(
    "upstream_request_duration_seconds",
    Kind.HISTOGRAM,
    "How long a request took, however it ended.",
    ("upstream", "operation"),
    _DURATIONS,
)
INFLIGHT = Metric("inflight_events", Kind.GAUGE, "Attempts that run now.", ("lane",))
BUFFERED = Metric("buffered_events", Kind.GAUGE, "Records delivered by Kafka that wait for their turn.", ("lane",))
PARKED = Metric("parked_events", Kind.GAUGE, "Records that wait for their next attempt.", ("lane", "reason"))
BREAKER_OPEN = Metric(
    "breaker_open",
    Kind.GAUGE,
    "1 while the lane starts nothing new because of the upstream, else 0.",
    ("lane", "upstream", "reason"),
)
PAUSED = Metric("paused_partitions", Kind.GAUGE, "Partitions that are paused for backpressure.", ("topic",))
ASSIGNED = Metric("assigned_partitions", Kind.GAUGE, "Partitions that this process holds.", ("topic",))
REBALANCES = Metric("rebalances_total", Kind.COUNTER, "Times that partitions came or went.", ("lane", "kind"))
COMMITS = Metric(
    "commits_total",
    Kind.COUNTER,
    "Commits of offsets; unknown is one that was cancelled or timed out.",
    ("lane", "result"),
)
EXPIRED = Metric(
    "expired_records_total", Kind.COUNTER, "Records that retention deleted before they were read.", ("lane",)
)
POLL_FAILURES = Metric(
    "poll_failures_total", Kind.COUNTER, "Times that the consumer raised; polling went on.", ("lane",)
)
LAST_POLL = Metric(
    "last_poll_timestamp_seconds", Kind.GAUGE, "When the lane last polled, Unix time; 0 for never.", ("lane",)
)
LAST_COMMIT = Metric(
    "last_commit_timestamp_seconds", Kind.GAUGE, "When the lane last committed, Unix time; 0 for never.", ("lane",)
)
OLDEST_UNCOMMITTED = Metric(
    "oldest_uncommitted_seconds", Kind.GAUGE, "Age of the oldest delivered record that is not committed.", ("lane",)
)
TOOL_CALLS = Metric("tool_calls_total", Kind.COUNTER, "Calls of the tools, by how they ended.", ("tool", "outcome"))
TOOL_CALL_DURATION = Metric(
    "tool_call_duration_seconds",
    Kind.HISTOGRAM,
    "How long a call of a tool took, with the proof of who calls.",
    ("tool", "outcome"),
    _DURATIONS,
)
RELAY_PUBLISHED = Metric(
    "relay_published_total", Kind.COUNTER, "Events of Paperclip that Kafka has acknowledged.", ("topic",)
)
RELAY_LAG = Metric(
    "relay_lag_seconds",
    Kind.GAUGE,
    "How long ago all that Paperclip had for the topic was read last, of the company where that is longest.",
    ("topic",),
)
RELAY_COMPANIES = Metric(
    "relay_companies", Kind.GAUGE, "Companies that the relay follows, by how that goes at its worst.", ("state",)
)
_PLACE = ("group", "topic", "partition")
GROUP_LAG = Metric("group_lag_records", Kind.GAUGE, "Records that the group has not committed.", _PLACE)
GROUP_LAG_SECONDS = Metric(
    "group_lag_seconds", Kind.GAUGE, "Age of the first record that the group has not committed; 0 for none.", _PLACE
)
GROUP_COMMITTED = Metric("group_committed_offset", Kind.GAUGE, "Offset that the group has committed.", _PLACE)
LOG_END = Metric("log_end_offset", Kind.GAUGE, "Offset of the next record to come.", ("topic", "partition"))
GROUP_WITHOUT_COMMIT = Metric(
    "group_partitions_without_commit", Kind.GAUGE, "Partitions without any commit of the group.", ("group", "topic")
)
GROUP_MEMBERS = Metric("group_members", Kind.GAUGE, "Members of the group.", ("group",))
GROUP_STATE = Metric("group_state", Kind.GAUGE, "1 for the state that the group is in, else 0.", ("group", "state"))
DEAD_LETTER_DEPTH = Metric(
    "dead_letter_depth_records", Kind.GAUGE, "Records in the topic, with the notes of what was sent back.", ("topic",)
)
QUEUE_DEPTH = Metric(
    "hindsight_queue_depth", Kind.GAUGE, "Operations that are not over, or failed.", ("operation_type", "status")
)
CONSOLIDATION_BACKLOG = Metric(
    "hindsight_consolidation_backlog", Kind.GAUGE, "Memories that wait for consolidation by Hindsight."
)
CONSOLIDATION_FAILED = Metric(
    "hindsight_consolidation_failed", Kind.GAUGE, "Memories whose consolidation by Hindsight failed for good."
)
OLDEST_PENDING = Metric(
    "hindsight_oldest_pending_seconds", Kind.GAUGE, "Age of the oldest operation that is not over; 0 for none."
)
BANKS_KNOWN = Metric("hindsight_banks_known", Kind.GAUGE, "Banks that Hindsight holds.")
BANKS_OBSERVED = Metric(
    "hindsight_banks_observed", Kind.GAUGE, "Banks that the exporter looks into while the queue is not empty."
)
SNAPSHOT = Metric(
    "snapshot_timestamp_seconds", Kind.GAUGE, "When the source last answered, Unix time; 0 for never.", ("source",)
)
COLLECT_SUCCESS = Metric(
    "collect_success", Kind.GAUGE, "1 if the source answered when it was last asked, else 0.", ("source",)
)
COLLECT_DURATION = Metric(
    "collect_duration_seconds", Kind.GAUGE, "How long it took to ask the source last.", ("source",)
)
BUILD_INFO = Metric("build_info", Kind.GAUGE, "1, with the version that runs.", ("version",))

METRICS = (
    EVENTS,
    EVENT_DURATION,
    EVENT_AGE,
    DEAD_LETTERS,
    SKIPPED,
    REQUESTS,
    REQUEST_DURATION,
    INFLIGHT,
    BUFFERED,
    PARKED,
    BREAKER_OPEN,
    PAUSED,
    ASSIGNED,
    REBALANCES,
    COMMITS,
    EXPIRED,
    POLL_FAILURES,
    LAST_POLL,
    LAST_COMMIT,
    OLDEST_UNCOMMITTED,
    TOOL_CALLS,
    TOOL_CALL_DURATION,
    RELAY_PUBLISHED,
    RELAY_LAG,
    RELAY_COMPANIES,
    GROUP_LAG,
    GROUP_LAG_SECONDS,
    GROUP_COMMITTED,
    LOG_END,
    GROUP_WITHOUT_COMMIT,
    GROUP_MEMBERS,
    GROUP_STATE,
    DEAD_LETTER_DEPTH,
    QUEUE_DEPTH,
    CONSOLIDATION_BACKLOG,
    CONSOLIDATION_FAILED,
    OLDEST_PENDING,
    BANKS_KNOWN,
    BANKS_OBSERVED,
    SNAPSHOT,
    COLLECT_SUCCESS,
    COLLECT_DURATION,
    BUILD_INFO,
)

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
    ("*", "operation"): ("what the client asked",),
    ("*", "lane"): ("recall", "retain"),
    ("*", "topic"): ("the lanes' topics",),
    (REBALANCES.name, "kind"): tuple(RebalanceKind),
    (COMMITS.name, "result"): tuple(CommitResult),
    ("*", "tool"): tuple(Tool),
    (TOOL_CALLS.name, "outcome"): tuple(ToolOutcome),
    (TOOL_CALL_DURATION.name, "outcome"): tuple(ToolOutcome),
    (RELAY_PUBLISHED.name, "topic"): ("of runs and of comments",),
    (RELAY_LAG.name, "topic"): ("of runs and of comments",),
    (RELAY_COMPANIES.name, "state"): tuple(RelayState),
    ("*", "group"): ("the lanes' groups",),
    ("*", "partition"): ("numbers",),
    (DEAD_LETTER_DEPTH.name, "topic"): ("of the dead letters",),
    (GROUP_STATE.name, "state"): tuple(GroupState),
    ("*", "operation_type"): tuple(OperationType),
    ("*", "status"): tuple(OperationStatus),
    ("*", "source"): tuple(Source),
    ("*", "version"): ("of paperclip-memory",),
}


def metrics_table() -> str:
    """`docs/metrics.md`: every metric with its type, what it counts, and its labels with all their values."""
    lines = [
        "# Metrics",
        "",
        "Made from `consumer/observability/metrics.py`. A process serves at `/metrics` those that it has, and its own",
        "(`process_…`). Counters stand at zero from the start; all times are seconds.",
        "",
        "| name | type | what it says | labels |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{each.full_name}` | {each.kind} | {each.help} | {_labels(each)} |" for each in METRICS]
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> str:
    shown = []
    for label in metric.labels:
        values = _VALUES.get((metric.name, label)) or _VALUES["*", label]
        shown.append(f"`{label}`: {', '.join(values)}")
    return "<br>".join(shown) or "none"
