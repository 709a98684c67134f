"""A trace that begins at the producer goes on into Hindsight."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from consumer.dispatcher import COMMENT_HANDLERS, Dispatcher
from consumer.errors import Upstream, UpstreamDown
from consumer.hindsight.client import HindsightClient
from consumer.http.transport import ConnectError, Request, Response
from consumer.observability import tracing as module
from consumer.observability.tracing import Tracing, tracing
from consumer.stream.records import Record
from schemas.codec import encode
from tests.support.fakes import HandlerFixture

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Hindsight:
    """A `Transport` that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.down = False

    async def __call__(self, request: Request) -> Response:
        self.asked.append(request)
        if self.down:
            raise ConnectError("refused")
        return Response(200, {}, b'{"success": true}')


class TracingHarness:
    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.traces = Tracing(provider)
        self.hindsight = Hindsight()
        send = self.traces.sends(self.hindsight, Upstream.HINDSIGHT)
        client = HindsightClient(send, "http://hindsight.example", key="s3cret", user_agent="t")
        needs = replace(HandlerFixture().context, hindsight=client)
        self.resolve = self.traces.jobs(Dispatcher(needs, COMMENT_HANDLERS).resolve, "retain")

    def record(self, *headers: tuple[str, bytes]) -> Record:
        from demo import recording

        event = next(event for event in recording.events() if event["eventType"] == "issue.comment.created")
        return Record("comments", 3, 41, 0, b"k", encode(event), headers)

    async def run(self, *headers: tuple[str, bytes]) -> dict[str, ReadableSpan]:
        job = self.resolve(self.record(*headers))
        assert job.run is not None
        try:
            await job.run()
        except UpstreamDown:
            assert self.hindsight.down
        return {span.name: span for span in self.spans.get_finished_spans()}


@pytest.fixture
def harness() -> TracingHarness:
    return TracingHarness()


async def test_the_producers_trace_context_reaches_hindsight(harness: TracingHarness) -> None:
    spans = await harness.run(("traceparent", PARENT.encode()))
    attempt, request = spans["retain"], spans["hindsight retain"]
    assert attempt.parent is not None
    assert request.parent is not None
    assert f"{attempt.parent.span_id:016x}" == SPAN
    assert request.parent.span_id == attempt.context.span_id
    (asked,) = [request for request in harness.hindsight.asked if request.operation == "retain"]
    assert asked.headers["traceparent"] == f"00-{TRACE}-{request.context.span_id:016x}-01"
    assert asked.headers["Authorization"] == "Bearer s3cret", "the other headers stay"


async def test_a_record_without_a_trace_context_starts_a_trace(harness: TracingHarness) -> None:
    spans = await harness.run()
    assert spans["retain"].parent is None
    assert (
        harness.hindsight.asked[-1].headers["traceparent"].split("-")[1] == f"{spans['retain'].context.trace_id:032x}"
    )


async def test_a_malformed_trace_context_is_ignored(harness: TracingHarness) -> None:
    assert (await harness.run(("traceparent", b"\xff nonsense")))["retain"].parent is None


async def test_a_failure_is_recorded_in_both_spans(harness: TracingHarness) -> None:
    harness.hindsight.down = True
    spans = await harness.run()
    assert {name: span.status.is_ok for name, span in spans.items()} == {"retain": False, "hindsight retain": False}


async def test_spans_name_the_record_and_contain_no_secret_or_text(harness: TracingHarness) -> None:
    spans = await harness.run()
    attributes = spans["retain"].attributes
    assert attributes is not None
    assert (attributes["messaging.destination.name"], attributes["messaging.kafka.offset"]) == ("comments", 41)
    assert (attributes["paperclip_memory.lane"], attributes["paperclip_memory.outcome"]) == ("retain", "done")
    text = "".join(span.to_json() for span in spans.values())
    assert "s3cret" not in text
    assert "paperclip::" not in text
    assert "paperclip%3A" not in text


def test_an_ignored_record_makes_no_span(harness: TracingHarness) -> None:
    ignored = Record("comments", 0, 0, 0, None, b'{"eventType": "something.else"}')
    assert harness.resolve(ignored).run is None
    assert harness.spans.get_finished_spans() == ()


# Whether there are traces at all.


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in module.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    tracing.cache_clear()
    yield module
    tracing.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_tracing_is_off_without_an_endpoint() -> None:
    assert tracing() is None


@pytest.mark.usefixtures("fresh")
def test_tracing_is_on_with_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    process_tracing = tracing()
    assert isinstance(process_tracing, Tracing)
    assert tracing() is process_tracing, "one for the process"


@pytest.mark.usefixtures("fresh")
def test_tracing_without_the_extra_logs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with capture_logs() as lines:
        assert tracing() is None
    assert lines == [
        {
            "event": "tracing is off: the extra is not installed",
            "install": "paperclip-memory[otel]",
            "log_level": "warning",
        }
    ]
