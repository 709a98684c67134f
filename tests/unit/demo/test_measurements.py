"""Reading the worker's counters."""

from demo.measurements import WorkerMetrics


def test_changes_list_only_changed_counters() -> None:
    before = {'events_total{handler="retain"}': 0.0, "commits_total": 3.0}
    after = {'events_total{handler="retain"}': 17.0, "commits_total": 3.0, "new_total": 1.0}

    assert WorkerMetrics.changes(before, after) == [
        ('events_total{handler="retain"}', "0", "17"),
        ("new_total", "0", "1"),
    ]
