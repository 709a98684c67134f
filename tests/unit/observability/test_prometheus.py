import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from consumer.errors import DeadLetterReason, Upstream
from consumer.handlers.results import SkipReason
from consumer.http.transport import ConnectError, ConnectionLost, Request, RequestTimeout, Response, TransportError
from consumer.observability.exporter_gauges import ExporterGauges
from consumer.observability.lane_gauges import LaneGauges
from consumer.observability.metrics import METRICS, Result
from consumer.observability.prometheus import Metrics, result_of
from consumer.observability.relay_gauges import RelayGauges, count_published
from consumer.observability.tool_metrics import ToolMetrics
from consumer.relay.hooks import Source
from consumer.stream.hooks import (
    AttemptOutcome,
    BreakerChanged,
    BreakerReason,
    CommitFinished,
    CommitResult,
    ParkReason,
    PollFailed,
    Rebalanced,
    RebalanceKind,
    RecordsExpired,
    Stalled,
)
from consumer.stream.records import Partition
from tests.unit.exporter.samples import NOW, polled_hindsight, polled_kafka
from tests.unit.observability.samples import attempt, lane, value


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(
        registry,
        version="1.2.3",
        lanes=("recall", "retain"),
        operations={Upstream.HINDSIGHT: ("recall", "retain"), Upstream.PAPERCLIP: ("comment",)},
    )


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of ours in the text that a scrape gets."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name.startswith("paperclip_memory_")
    }


def test_every_counter_starts_at_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    registry.register(LaneGauges(lambda: [lane(assigned={"t": 1}, paused={"t": 0}, waiting={Partition("t", 0): 0.0})]))
    ToolMetrics(registry)
    count_published(registry, ["t"])
    registry.register(RelayGauges({Source.RUNS: "t"}, lambda _: 0.0, list))
    registry.register(ExporterGauges(polled_kafka, polled_hindsight, 60.0, lambda: NOW))
    before = samples(registry)
    present = {name for name, _ in before}
    for metric in METRICS:
        suffix = "_count" if metric.kind == "histogram" else ""
        assert metric.full_name + suffix in present
    assert {number for (name, _), number in before.items() if name.endswith(("_total", "_count"))} == {0.0}
    assert not any(name.endswith("_created") for name in present)


def test_engine_events_create_no_new_series(registry: CollectorRegistry, metrics: Metrics) -> None:
    before = set(samples(registry))
    for handler in ("recall", "forget", "ignored", "undecodable", "one of tomorrow"):
        for outcome in AttemptOutcome:
            for reason in (None, *SkipReason, *Upstream, *DeadLetterReason, *ParkReason):
                metrics.notify(attempt(handler=handler, outcome=outcome, reason=reason))
    assert set(samples(registry)) == before


def test_a_success_observes_duration_and_age(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(duration=0.05, age=1.5))
    assert value(registry, "events_total", handler="retain", outcome="succeeded") == 1
    assert value(registry, "event_duration_seconds_sum", handler="retain") == 0.05
    assert value(registry, "event_duration_seconds_bucket", handler="retain", le="0.05") == 1
    assert value(registry, "event_duration_seconds_bucket", handler="retain", le="0.025") == 0
    assert value(registry, "event_age_seconds_sum", handler="retain") == 1.5


def test_a_retry_observes_duration_but_no_age(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(outcome=AttemptOutcome.RETRIED, reason=ParkReason.RETRY))
    assert value(registry, "events_total", handler="retain", outcome="retried") == 1
    assert value(registry, "event_duration_seconds_count", handler="retain") == 1
    assert value(registry, "event_age_seconds_count", handler="retain") == 0


def test_an_age_from_a_clock_ahead_of_ours_is_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(age=-3.0))
    assert value(registry, "event_age_seconds_sum", handler="retain") == 0


def test_ignored_and_undecodable_records_observe_no_duration(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(handler="ignored", outcome=AttemptOutcome.IGNORED))
    metrics.notify(
        attempt(handler="undecodable", outcome=AttemptOutcome.DEAD_LETTERED, reason=DeadLetterReason.UNDECODABLE)
    )
    assert value(registry, "events_total", handler="ignored", outcome="ignored") == 1
    assert value(registry, "dead_letters_total", handler="undecodable", reason="undecodable") == 1
    assert {number for (name, _), number in samples(registry).items() if name.endswith("_seconds_count")} == {0.0}


def test_skip_and_dead_letter_reasons_are_counted_separately(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(outcome=AttemptOutcome.SKIPPED, reason=SkipReason.NO_AGENT))
    metrics.notify(attempt(outcome=AttemptOutcome.DEAD_LETTERED, reason=DeadLetterReason.REJECTED))
    metrics.notify(attempt(handler="recall", outcome=AttemptOutcome.FAILED, reason=Upstream.HINDSIGHT))
    assert value(registry, "skipped_total", handler="retain", reason="no_agent") == 1
    assert value(registry, "dead_letters_total", handler="retain", reason="rejected") == 1
    assert value(registry, "events_total", handler="recall", outcome="failed") == 1


def test_an_unknown_handler_is_counted_as_other(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(attempt(handler="one of tomorrow"))
    assert value(registry, "events_total", handler="other", outcome="succeeded") == 1
    assert value(registry, "event_duration_seconds_count", handler="other") == 1


def test_lane_events_are_counted(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.notify(CommitFinished("retain", CommitResult.UNKNOWN, 3))
    metrics.notify(Rebalanced("recall", RebalanceKind.LOST, 4))
    metrics.notify(RecordsExpired("retain", "topic", 0, 17))
    metrics.notify(PollFailed("recall", "boom"))
    assert value(registry, "commits_total", lane="retain", result="unknown") == 1
    assert value(registry, "rebalances_total", lane="recall", kind="lost") == 1
    assert value(registry, "expired_records_total", lane="retain") == 17
    assert value(registry, "poll_failures_total", lane="recall") == 1


def test_breaker_and_stalled_events_change_no_counter(registry: CollectorRegistry, metrics: Metrics) -> None:
    before = samples(registry)
    metrics.notify(BreakerChanged("retain", Upstream.HINDSIGHT, BreakerReason.FAILING, opened=True))
    metrics.notify(Stalled("retain", 60.0, "stack"))
    assert samples(registry) == before


def test_build_info_and_process_metrics_are_registered(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert value(registry, "build_info", version="1.2.3") == 1
    assert registry.get_sample_value("process_resident_memory_bytes")


@pytest.mark.parametrize(
    ("upstream", "status", "result"),
    [
        (Upstream.HINDSIGHT, 200, Result.OK),
        (Upstream.HINDSIGHT, 204, Result.OK),
        (Upstream.HINDSIGHT, 307, Result.REDIRECTED),
        (Upstream.HINDSIGHT, 401, Result.REFUSED),
        (Upstream.HINDSIGHT, 402, Result.REFUSED),
        (Upstream.HINDSIGHT, 403, Result.REFUSED),
        (Upstream.PAPERCLIP, 401, Result.REFUSED),
        (Upstream.PAPERCLIP, 403, Result.REJECTED),
        (Upstream.HINDSIGHT, 404, Result.REJECTED),
        (Upstream.HINDSIGHT, 422, Result.REJECTED),
        (Upstream.HINDSIGHT, 429, Result.LIMITED),
        (Upstream.HINDSIGHT, 500, Result.FAILED),
        (Upstream.HINDSIGHT, 503, Result.FAILED),
        (Upstream.HINDSIGHT, 999, Result.FAILED),
    ],
)
async def test_a_response_is_counted_by_its_status(
    registry: CollectorRegistry, metrics: Metrics, upstream: Upstream, status: int, result: Result
) -> None:
    reply = Response(status, {}, b"")

    async def send(request: Request) -> Response:
        return reply

    assert result_of(upstream, status) is result
    operation = "recall" if upstream is Upstream.HINDSIGHT else "comment"
    assert await metrics.measured(send, upstream)(Request("GET", "http://x", operation=operation)) is reply
    labels = {"upstream": upstream, "operation": operation}
    assert value(registry, "upstream_requests_total", **labels, result=result) == 1
    assert value(registry, "upstream_request_duration_seconds_count", **labels) == 1


@pytest.mark.parametrize(
    ("error", "result"),
    [(RequestTimeout("t"), Result.TIMEOUT), (ConnectError("u"), Result.CONNECT), (ConnectionLost("b"), Result.BROKEN)],
)
async def test_a_failed_request_is_counted_and_raised(
    registry: CollectorRegistry, metrics: Metrics, error: TransportError, result: Result
) -> None:
    async def send(request: Request) -> Response:
        raise error

    with pytest.raises(type(error)):
        await metrics.measured(send, Upstream.HINDSIGHT)(Request("POST", "http://x", operation="retain"))
    labels = {"upstream": "hindsight", "operation": "retain"}
    assert value(registry, "upstream_requests_total", **labels, result=result) == 1
    assert value(registry, "upstream_request_duration_seconds_count", **labels) == 1


async def test_an_unknown_operation_is_counted_as_other(registry: CollectorRegistry, metrics: Metrics) -> None:
    async def send(request: Request) -> Response:
        return Response(200, {}, b"")

    await metrics.measured(send, Upstream.PAPERCLIP)(Request("GET", "http://x", operation="/api/agents/4711"))
    assert value(registry, "upstream_requests_total", upstream="paperclip", operation="other", result="2xx") == 1
