"""Tracing, with the extra `otel`: one span for each attempt at a record and for each request that it makes.

A record's `traceparent` header (W3C Trace Context) is the parent of its attempts, and requests to Hindsight and
Paperclip carry the attempt's context, so a trace continues from the producer into Hindsight. OpenTelemetry's own
variables configure the exporter (`OTEL_EXPORTER_OTLP_ENDPOINT` and others). No span contains a body, a key or a bank.
"""

import os
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from consumer.errors import Upstream
from consumer.handlers.results import HandlerResult
from consumer.http.transport import Request, Response, Transport
from consumer.stream.executor import Job, JobFactory
from consumer.stream.records import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CONTEXT_HEADERS = ("traceparent", "tracestate")


class Tracing:
    """Creates spans with one provider."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._tracer = provider.get_tracer("paperclip-memory")
        self._context = TraceContextTextMapPropagator()
        self._kinds = SpanKind

    def jobs(self, resolve: JobFactory, lane: str) -> JobFactory:
        """`resolve`, with a span around every attempt."""

        def traced(record: Record) -> Job:
            job = resolve(record)
            attempt = job.run
            if attempt is None:
                return job
            parent = self._context.extract({name: text for name in _CONTEXT_HEADERS if (text := record.header(name))})
            attributes: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": record.topic,
                "messaging.destination.partition.id": str(record.partition),
                "messaging.kafka.offset": record.offset,
                "paperclip_memory.lane": lane,
                **{f"paperclip_memory.{name}": text for name, text in job.facts.items()},
            }

            async def run() -> HandlerResult:
                with self._tracer.start_as_current_span(
                    job.handler, context=parent, kind=self._kinds.CONSUMER, attributes=attributes
                ) as span:
                    outcome = await attempt()
                    span.set_attribute("paperclip_memory.outcome", type(outcome).__name__.lower())
                    return outcome

            return replace(job, run=run)

        return traced

    def sends(self, send: Transport, upstream: Upstream) -> Transport:
        """`send`, with a span around every request; the request carries its context."""

        async def traced(request: Request) -> Response:
            attributes = {
                "http.request.method": request.method,
                "server.address": urlsplit(request.url).hostname or "",
                "peer.service": upstream.value,
            }
            name = f"{upstream} {request.operation}"
            with self._tracer.start_as_current_span(name, kind=self._kinds.CLIENT, attributes=attributes) as span:
                headers = dict(request.headers)
                self._context.inject(headers)
                reply = await send(replace(request, headers=headers))
                span.set_attribute("http.response.status_code", reply.status)
                return reply

        return traced


@lru_cache(1)
def tracing() -> Tracing | None:
    """This process's tracing; None unless the extra is installed and an endpoint is set."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        structlog.get_logger().warning("tracing is off: the extra is not installed", install="paperclip-memory[otel]")
        return None

    name = os.environ.get("OTEL_SERVICE_NAME", "paperclip-memory")
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
