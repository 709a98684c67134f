"""Which series a PromQL expression selects, and which series exist."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml  # type: ignore[import-untyped]

from consumer.observability.metrics import METRICS, Kind

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
BY_SCRAPE = {"job", "instance"}
SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}


@dataclass(frozen=True)
class Selected:
    """A metric that an expression selects, and the labels in its selector."""

    metric: str
    labels: frozenset[str]


def rules() -> list[dict[str, Any]]:
    """Every rule, in the order of evaluation."""
    all_rules = []
    for name in ("recording", "alerts"):
        document = yaml.safe_load((PROMETHEUS / "rules" / f"{name}.yml").read_text())
        all_rules += [rule for group in document["groups"] for rule in group["rules"]]
    return all_rules


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def series() -> dict[str, set[str]]:
    """Every series that our processes export or recording rules create, with its labels."""
    labels_by_series = {}
    for metric in METRICS:
        for suffix in SUFFIXES.get(metric.kind, ("",)):
            extra = {"le"} if suffix == "_bucket" else set()
            labels_by_series[metric.full_name + suffix] = {*metric.labels, *extra, *BY_SCRAPE}
    for rule in rules():
        if "record" in rule:
            labels_by_series[rule["record"]] = set(grouping(rule["expr"]))
    return labels_by_series


def selected(expression: str) -> list[Selected]:
    """The series that an expression selects; raises ValueError if it is not PromQL."""
    return list(_selectors(promql_parser.parse(expression)))


def grouping(expression: str) -> list[str]:
    """The labels of the result of an aggregation, or of arithmetic on two aggregations."""
    node = promql_parser.parse(expression)
    while not isinstance(node, promql_parser.AggregateExpr):
        if isinstance(node, promql_parser.Call):
            node = next(argument for argument in node.args if not isinstance(argument, promql_parser.NumberLiteral))
        elif isinstance(node, promql_parser.BinaryExpr):
            node = node.lhs
        else:
            raise TypeError(f"{expression}: {type(node).__name__}")
    labels = list(node.modifier.labels) if node.modifier else []
    is_quantile = expression.strip().startswith("histogram_quantile")
    return [label for label in labels if not (is_quantile and label == "le")]


def _selectors(node: Any) -> Iterator[Selected]:
    match node:
        case promql_parser.VectorSelector():
            yield Selected(node.name or "", frozenset(matcher.name for matcher in node.matchers.matchers))
        case promql_parser.MatrixSelector():
            yield from _selectors(node.vector_selector)
        case promql_parser.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from _selectors(argument)
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from _selectors(node.expr)
        case promql_parser.SubqueryExpr():
            yield from _selectors(node.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise TypeError(type(node).__name__)
