"""Records the metrics of `consumer.observability.metrics` from engine events and requests.

Labelled children are resolved once, at the start: `labels()` is the most expensive part, and this runs for every
record.
"""

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily

from consumer.errors import DeadLetterReason, Upstream
from consumer.handlers.results import SkipReason
from consumer.http.transport import ConnectError, Request, RequestTimeout, Response, Transport, TransportError
from consumer.observability import metrics as names
from consumer.observability.metrics import Metric, Result
from consumer.stream.hooks import (
    AttemptFinished,
    AttemptOutcome,
    CommitFinished,
    CommitResult,
    EngineEvent,
    PollFailed,
    Rebalanced,
    RebalanceKind,
    RecordsExpired,
)


class Metrics:
    """The counters and histograms of one process.

    Attributes:
        key_expires: when the Paperclip key of this process ends, seconds since the epoch.

    Args:
        registry: registers them, and the process's own metrics.
        version: of paperclip-memory.
        lanes: names of the lanes of this process.
        operations: by upstream, every value that `Request.operation` can have.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        version: str,
        lanes: Sequence[str],
        operations: Mapping[Upstream, Iterable[str]],
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # `_created` doubles the series, and nothing reads it
        ProcessCollector(registry=registry)
        build = Gauge(names.BUILD_INFO.full_name, names.BUILD_INFO.help, names.BUILD_INFO.labels, registry=registry)
        build.labels(version).set(1)

        self.key_expires = Gauge(names.KEY_EXPIRES.full_name, names.KEY_EXPIRES.help, registry=registry)

        events = counter(registry, names.EVENTS)
        self._events = {
            (handler, outcome): events.labels(handler, outcome)
            for handler in names.HANDLER_LABELS
            for outcome in AttemptOutcome
        }
        durations, ages = histogram(registry, names.EVENT_DURATION), histogram(registry, names.EVENT_AGE)
        self._times = {
            handler: (durations.labels(handler), ages.labels(handler)) for handler in (*names.HANDLERS, names.OTHER)
        }
        dead_letters, skipped = counter(registry, names.DEAD_LETTERS), counter(registry, names.SKIPPED)
        self._reasons: dict[tuple[str, AttemptOutcome, object], Counter] = {
            **{
                (handler, AttemptOutcome.DEAD_LETTERED, reason): dead_letters.labels(handler, reason)
                for handler in names.HANDLER_LABELS
                for reason in DeadLetterReason
            },
            **{
                (handler, AttemptOutcome.SKIPPED, reason): skipped.labels(handler, reason)
                for handler in names.HANDLER_LABELS
                for reason in SkipReason
            },
        }
        rebalances, commits = counter(registry, names.REBALANCES), counter(registry, names.COMMITS)
        self._rebalances = {(lane, kind): rebalances.labels(lane, kind) for lane in lanes for kind in RebalanceKind}
        self._commits = {(lane, result): commits.labels(lane, result) for lane in lanes for result in CommitResult}
        expired, poll_failures = counter(registry, names.EXPIRED), counter(registry, names.POLL_FAILURES)
        self._expired = {lane: expired.labels(lane) for lane in lanes}
        self._poll_failures = {lane: poll_failures.labels(lane) for lane in lanes}

        requests, times = counter(registry, names.REQUESTS), histogram(registry, names.REQUEST_DURATION)
        self._upstreams = {
            upstream: {
                operation: (
                    {result: requests.labels(upstream, operation, result) for result in Result},
                    times.labels(upstream, operation),
                )
                for operation in (*upstream_operations, names.OTHER)
            }
            for upstream, upstream_operations in operations.items()
        }

    def notify(self, event: EngineEvent) -> None:
        """Count an event; a `Hook` of the engine."""
        match event:
            case AttemptFinished():
                self._count_attempt(event)
            case CommitFinished(lane=lane, result=result):
                self._commits[lane, result].inc()
            case Rebalanced(lane=lane, kind=kind):
                self._rebalances[lane, kind].inc()
            case RecordsExpired(lane=lane, records=records):
                self._expired[lane].inc(records)
            case PollFailed(lane=lane):
                self._poll_failures[lane].inc()
            case _:
                pass  # breakers are gauges, and a stalled process exits

    def measured(self, send: Transport, upstream: Upstream) -> Transport:
        """`send`, with every request counted and timed; a cancelled request has no result and is not counted."""
        operations = self._upstreams[upstream]
        other = operations[names.OTHER]

        async def measured_send(request: Request) -> Response:
            results, times = operations.get(request.operation, other)
            started = perf_counter()
            try:
                response = await send(request)
            except TransportError as error:
                times.observe(perf_counter() - started)
                results[_failure(error)].inc()
                raise
            times.observe(perf_counter() - started)
            results[result_of(upstream, response.status)].inc()
            return response

        return measured_send

    def _count_attempt(self, event: AttemptFinished) -> None:
        handler = event.handler if event.handler in _KNOWN_HANDLERS else names.OTHER
        self._events[handler, event.outcome].inc()
        if times := self._times.get(handler):
            duration, age = times
            duration.observe(event.duration)
            if event.outcome is not AttemptOutcome.RETRIED:
                age.observe(max(0.0, event.age))  # the producer's clock may be ahead of ours
        if reason := self._reasons.get((handler, event.outcome, event.reason)):
            reason.inc()


def result_of(upstream: Upstream, status: int) -> Result:
    """The label value for a status. A 403 from Hindsight concerns our key, from Paperclip another company's object."""
    if status in (401, 402) or (status == 403 and upstream is Upstream.HINDSIGHT):
        return Result.REFUSED
    if status == 429:
        return Result.LIMITED
    return _BY_CLASS.get(status // 100, Result.FAILED)


def _failure(error: TransportError) -> Result:
    match error:
        case RequestTimeout():
            return Result.TIMEOUT
        case ConnectError():
            return Result.CONNECT
        case _:
            return Result.BROKEN


_KNOWN_HANDLERS = frozenset(names.HANDLER_LABELS)
_BY_CLASS = {2: Result.OK, 3: Result.REDIRECTED, 4: Result.REJECTED}


def counter(registry: CollectorRegistry, metric: Metric) -> Counter:
    """Register a counter."""
    return Counter(metric.full_name, metric.help, metric.labels, registry=registry)


def histogram(registry: CollectorRegistry, metric: Metric) -> Histogram:
    """Register a histogram."""
    return Histogram(metric.full_name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)


def gauge_family(metric: Metric, samples: Iterable[tuple[Sequence[str], float]]) -> GaugeMetricFamily:
    """The samples of a gauge, for a collector."""
    family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
