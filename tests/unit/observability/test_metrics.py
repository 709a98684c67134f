from pathlib import Path

import pytest

from consumer.observability.metrics import METRICS, PREFIX, Kind, Metric
from scripts.reference_tables import metrics_table

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_docs_metrics_md_is_up_to_date() -> None:
    assert metrics_table() in DOCS.read_text(), "docs/metrics.md is stale: python -m scripts.reference_tables"


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_promtool(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.full_name == PREFIX + metric.name
    assert metric.help.endswith(".")
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith("_seconds")
        assert list(metric.buckets) == sorted(set(metric.buckets))
    else:
        assert not metric.buckets


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_label_has_a_closed_set_of_values(metric: Metric) -> None:
    assert set(metric.labels) <= {
        *("handler", "outcome", "reason", "upstream", "operation", "result"),
        *("lane", "topic", "kind", "tool", "version"),
        *("group", "partition", "state", "operation_type", "status", "source"),
    }


def test_every_metric_and_label_value_is_documented() -> None:
    table = metrics_table()
    for metric in METRICS:
        assert table.count(f"| `{metric.full_name}` |") == 1
    assert "`result`: 2xx, 3xx, refused, 4xx, 429, 5xx, timeout, connect, broken" in table
