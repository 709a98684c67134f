"""However many banks, runs and keys there are: the number of series stays what it was at the start."""

import uuid
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from consumer.commands.runtime import start_process
from consumer.errors import Upstream
from consumer.exporter.lag import Lag
from consumer.hindsight.client import HindsightOperation
from consumer.http.transport import Request, Response
from consumer.observability.exporter_gauges import ExporterGauges
from consumer.observability.lane_gauges import LaneGauges
from consumer.observability.tool_metrics import ToolMetrics
from consumer.settings.model import Settings
from consumer.stream.hooks import AttemptOutcome
from consumer.stream.records import Partition
from consumer.tools.results import Tool, ToolOutcome
from tests.unit.exporter.samples import HINDSIGHT, KAFKA, NOW, RECALL, polled_hindsight, polled_kafka
from tests.unit.observability.samples import attempt, lane

BANKS_AND_RUNS = 10_000


def series(registry: CollectorRegistry) -> int:
    return sum(not line.startswith(b"#") for line in generate_latest(registry).splitlines())


async def test_ten_thousand_banks_and_runs_add_no_series() -> None:
    settings = Settings(hindsight_api_url="http://localhost:8888")
    process = start_process(settings, ("recall", "retain"))
    registry = process.registry
    states = [lane(assigned={"t": 1}, paused={"t": 0})]
    registry.register(LaneGauges(lambda: states))
    calls = ToolMetrics(registry)
    kafka, hindsight = polled_kafka(), polled_hindsight()
    registry.register(ExporterGauges(lambda: kafka, lambda: hindsight, 60.0, lambda: NOW))
    before = series(registry)

    async def answer(_request: Request) -> Response:
        return Response(200, {}, b"{}")

    send = process.metrics.measured(answer, Upstream.HINDSIGHT)
    for n in range(BANKS_AND_RUNS):
        run, bank = str(uuid.uuid4()), f"paperclip::{uuid.uuid4()}::{uuid.uuid4()}"
        facts: dict[str, str | int] = {"run_id": run, "bank": bank, "event_id": run, "event_type": f"made.up.{n}"}
        process.metrics.notify(
            attempt(
                handler=("retain", bank)[n % 2],
                outcome=list(AttemptOutcome)[n % len(AttemptOutcome)],
                facts=facts,
                error=bank,
            )
        )
        operation = (HindsightOperation.RECALL, bank)[n % 2]
        await send(Request("GET", f"http://hindsight/v1/default/banks/{bank}", operation=operation))
        calls.observe(list(Tool)[n % len(Tool)], list(ToolOutcome)[n % len(ToolOutcome)], 0.1)
    hindsight = polled_hindsight(replace(HINDSIGHT, banks_known=BANKS_AND_RUNS, banks_observed=50))
    moved = tuple(replace(lag, committed=BANKS_AND_RUNS, end=BANKS_AND_RUNS, records=0) for lag in RECALL.lags)
    kafka = polled_kafka(replace(KAFKA, groups=(replace(RECALL, lags=moved), *KAFKA.groups[1:])))
    assert series(registry) == before


def test_only_a_new_partition_adds_series() -> None:
    """The test above counts what a scrape gets."""
    polls = {"kafka": polled_kafka()}
    registry = CollectorRegistry()
    registry.register(ExporterGauges(lambda: polls["kafka"], polled_hindsight, 60.0, lambda: NOW))
    before = series(registry)
    more = (*RECALL.lags, Lag(Partition("runs", 1), 0, 0, 0, 0.0))
    polls["kafka"] = polled_kafka(replace(KAFKA, groups=(replace(RECALL, lags=more), *KAFKA.groups[1:])))
    assert series(registry) == before + 3
