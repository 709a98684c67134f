"""What the benchmarks say of the bars, and the page that they write."""

from dataclasses import replace

import pytest

from benchmarks import report
from benchmarks.measure import Result
from benchmarks.report import DEFAULT, FAST, FAST_ALONE, JAVA, check_targets, page, table

RESULT = Result("throughput", FAST, 64, 50.0, 1, 1200.0, 0.94, 200.0, 99.0, 51.0, 60.0, 0.2)
JAVA_256 = replace(RESULT, bench="density", system=JAVA, in_flight=256, events_per_second=4100.0, cpu_us_per_event=280)
RECALL = replace(RESULT, bench="recall", in_flight=16, sink_ms=120.0, p99_ms=160.0)
SCALING = replace(RESULT, bench="scaling", in_flight=16, events_per_second=310.0)


def _holds(*results: Result) -> list[bool]:
    return [check.holds for check in check_targets(results)]


def test_no_results_give_no_verdicts() -> None:
    assert check_targets([]) == []
    assert check_targets([RESULT]) == []


@pytest.mark.parametrize(("alone", "holds"), [(1237.0, True), (1238.0, False)])
def test_verdict_compares_with_the_transport_alone(alone: float, *, holds: bool) -> None:
    assert _holds(RESULT, replace(RESULT, system=FAST_ALONE, events_per_second=alone)) == [holds]


@pytest.mark.parametrize(("java", "holds"), [(1199.0, True), (1201.0, False)])
def test_verdict_compares_with_java(java: float, *, holds: bool) -> None:
    assert _holds(RESULT, replace(RESULT, system=JAVA, events_per_second=java)) == [holds]


@pytest.mark.parametrize(
    ("cpu", "java", "holds"), [(249, None, True), (251, None, False), (279, 280, True), (281, 280, False)]
)
def test_cpu_is_at_most_javas_or_250(cpu: float, java: float | None, *, holds: bool) -> None:
    results = [replace(RESULT, bench="density", in_flight=256, cpu_us_per_event=cpu)]
    if java is not None:
        results.append(replace(JAVA_256, cpu_us_per_event=java))
    assert _holds(*results) == [holds]


@pytest.mark.parametrize(("rate", "holds"), [(4200.0, True), (4000.0, False)])
def test_two_workers_reach_javas_rate(rate: float, *, holds: bool) -> None:
    two = replace(RESULT, bench="density", in_flight=128, workers=2, events_per_second=rate)
    assert _holds(two, JAVA_256) == [holds]


@pytest.mark.parametrize(("slower", "holds"), [(801.0, True), (799.0, False)])
@pytest.mark.parametrize("bench", ["throughput", "density"])
def test_each_backend_is_compared_with_the_best_python_peer(bench: str, slower: float, *, holds: bool) -> None:
    result = replace(RESULT, bench=bench)
    rates = {DEFAULT: slower, "FastStream, httpx": 20.0, "aiokafka, a plain loop": 800.0, "httpx alone, no Kafka": 9e9}
    results = [result, *(replace(result, system=name, events_per_second=rate) for name, rate in rates.items())]
    assert [each.holds for each in check_targets(results) if "Python" in each.bar] == [True, holds]


@pytest.mark.parametrize(("p99", "rss", "holds"), [(170.0, 150.0, [True, True]), (171.0, 151.0, [False, False])])
def test_verdicts_on_recall_latency_and_memory(p99: float, rss: float, holds: list[bool]) -> None:
    assert _holds(replace(RECALL, p99_ms=p99, rss_mb=rss)) == holds


@pytest.mark.parametrize(("two", "four", "holds"), [(605.0, 1179.0, [True, True]), (604.0, 1177.0, [False, False])])
def test_verdicts_on_scaling(two: float, four: float, holds: list[bool]) -> None:
    results = [replace(SCALING, workers=workers, events_per_second=rate) for workers, rate in [(2, two), (4, four)]]
    assert _holds(SCALING, *results)[:2] == holds


def test_the_table_has_a_row_for_each_line() -> None:
    rows = table([RESULT, replace(RESULT, workers=2)]).splitlines()
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2].startswith(f"| throughput | {FAST} | 64 | 1,200 | 0.940 | 200 | 99 |")
    assert "| 2 x 64 |" in rows[3]


def test_the_page_holds_medians_bars_and_the_machine() -> None:
    results = [replace(RESULT, events_per_second=rate) for rate in (1100.0, 1200.0, 1300.0)]
    text = page([*results, RECALL, replace(RECALL, load=1.5)], "2 cores")
    assert text.count(f"| throughput | {FAST} |") == 1
    assert "| 1,200 |" in text
    assert "Measured on 2 cores.\nLoad average before each run: 0.2 to 1.5." in text
    assert "- ✓ recall behind retains" in text
    assert "## 256 in flight" not in text  # nothing was measured
    assert report.table([RECALL]) in text
