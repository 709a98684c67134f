"""The relay's metrics and log lines."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from consumer.observability.relay_gauges import RelayGauges, count_published, log_relay
from consumer.relay.hooks import Notice, Published, RelayState, Source, StateChanged

COMPANY = "f7b2ffb0-dc3a-437e-9f75-94ccd64bb80d"


def test_metrics_show_published_events_lag_and_companies_by_state() -> None:
    registry = CollectorRegistry()
    topics = {Source.COMMENTS: "comments", Source.RUNS: "runs"}
    count = count_published(registry, topics.values())
    states = [RelayState.FOLLOWING, RelayState.FOLLOWING, RelayState.REFUSED]
    registry.register(
        RelayGauges(topics, lambda source: 1_000 - len(source), lambda: states, lambda: 90.0, lambda: 1_000)
    )
    count(Published("runs", 2))
    count(Notice("nothing", {}))
    text = generate_latest(registry).decode()
    assert 'paperclip_memory_relay_published_total{topic="runs"} 2.0' in text
    assert 'paperclip_memory_relay_published_total{topic="comments"} 0.0' in text
    assert 'paperclip_memory_relay_lag_seconds{topic="comments"} 8.0' in text
    assert "paperclip_memory_paperclip_clock_skew_seconds 90.0" in text
    assert 'paperclip_memory_relay_companies{state="following"} 2.0' in text
    assert 'paperclip_memory_relay_companies{state="refused"} 1.0' in text
    assert 'paperclip_memory_relay_companies{state="slow"} 0.0' in text


def test_log_has_each_state_and_notice_once_and_the_recovery() -> None:
    lines: list[tuple[str, str]] = []

    class Log:
        def __getattr__(self, level: str) -> Callable[..., None]:
            return lambda event, **_: lines.append((level, event))

    hook = log_relay(Log())  # type: ignore[arg-type]
    refused = StateChanged(COMPANY, Source.RUNS, RelayState.REFUSED, "401", 1.0)
    for event in (
        refused,
        refused,
        StateChanged(COMPANY, Source.RUNS, RelayState.FAILING, "500", 1.0),
        StateChanged(COMPANY, Source.RUNS, RelayState.FOLLOWING),
        Notice("skipping an issue that cannot be read", {"company": COMPANY}),
        Notice("skipping an issue that cannot be read", {"company": COMPANY}),
        Notice("following Paperclip", {}, expected=True),
        Published("runs", 1),
    ):
        hook(event)
    assert lines == [
        ("warning", "not following company"),
        ("warning", "not following company"),
        ("info", "following company again"),
        ("warning", "skipping an issue that cannot be read"),
        ("info", "following Paperclip"),
        ("debug", "events published"),
    ]
