"""From what a run left behind to its line."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measure import (
    Result,
    Sample,
    Window,
    cpu_at,
    medians,
    middle,
    percentile,
    read,
    turnarounds,
    within,
)

RESULT = Result("throughput", "ours", 64, 50.0, 1, 1234.56789, 0.96451, 250.123, 99.95, 51.23456, 54.3, 0.25)


def test_result_is_one_line_of_json_with_all_fields() -> None:
    assert "\n" not in RESULT.json
    assert json.loads(RESULT.json) == {
        "bench": "throughput",
        "system": "ours",
        "in_flight": 64,
        "sink_ms": 50.0,
        "workers": 1,
        "events_per_second": 1234.6,
        "of_ideal": 0.965,
        "cpu_us_per_event": 250.1,
        "rss_mb": 100.0,
        "p50_ms": 51.2,
        "p99_ms": 54.3,
        "load": 0.25,
    }


def test_results_are_read_back_from_json() -> None:
    second = replace(RESULT, system="theirs", workers=2)
    text = f"{RESULT.json}\n\n{second.json}\n"
    assert [result.json for result in read(text)] == [RESULT.json, second.json]


def test_window_leaves_out_the_first_and_last_tenth() -> None:
    window = middle(100.0, 110.0)
    assert window == pytest.approx((101.0, 109.0))
    assert window.seconds == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("times", "inside"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]),
        ([0.5, 3.5], []),
        ([], []),
        ([1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_within_selects_the_arrivals_in_the_window(times: list[float], inside: list[float]) -> None:
    assert times[within(times, Window(1.0, 3.0))] == inside


@pytest.mark.parametrize(("at", "cpu"), [(9.0, 1.0), (10.0, 1.0), (10.5, 1.5), (11.0, 2.0), (12.0, 4.0), (99.0, 6.0)])
def test_cpu_between_two_samples_is_interpolated(at: float, cpu: float) -> None:
    samples = [Sample(10.0, 1.0, 0.0), Sample(11.0, 2.0, 0.0), Sample(13.0, 6.0, 0.0)]
    assert cpu_at(samples, at) == pytest.approx(cpu)


def test_turnaround_is_the_time_between_requests_of_a_connection() -> None:
    assert turnarounds([0.0, 0.1, 0.5, 0.7, 2.0], [1, 2, 1, 2, 1]) == pytest.approx([0.5, 0.6, 1.5])


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, 0.0), ([7.0], 99, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), (range(1, 101), 99, 99), (range(1, 101), 100, 100)],
)
def test_percentile_is_the_nearest_rank(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 100))
def test_percentile_is_not_exceeded_by_that_percentage_of_values(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-6


def test_medians_are_computed_per_system_and_size() -> None:
    rates = (900.0, 1200.0, 1000.0)
    results = [replace(RESULT, events_per_second=rate) for rate in rates]
    results.insert(1, replace(RESULT, workers=2, events_per_second=2000.0))
    results.insert(2, replace(RESULT, system="theirs", events_per_second=5.0))
    assert [(o.system, o.workers, o.events_per_second) for o in medians(results)] == [
        ("ours", 1, 1000.0),
        ("ours", 2, 2000.0),
        ("theirs", 1, 5.0),
    ]
