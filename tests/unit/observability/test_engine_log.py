from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from consumer.errors import DeadLetterReason, Upstream
from consumer.handlers.results import SkipReason
from consumer.observability.engine_log import bank_hash, log_engine_events, warn_once
from consumer.stream.hooks import (
    AttemptOutcome,
    BreakerChanged,
    BreakerReason,
    CommitFinished,
    CommitResult,
    EngineEvent,
    ParkReason,
    PollFailed,
    Rebalanced,
    RebalanceKind,
    RecordsExpired,
    Stalled,
)
from tests.unit.observability.samples import attempt

FACTS = {"event_id": "e-1", "comment_id": "c-1", "topic": "paperclip.issue.comments", "partition": 3, "offset": 4711}


@pytest.fixture
def capture() -> LogCapture:
    return LogCapture()


@pytest.fixture
def logger(capture: LogCapture) -> Any:
    return structlog.wrap_logger(
        structlog.PrintLogger(), processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0)
    )


def logged(logger: Any, capture: LogCapture, signal: EngineEvent) -> dict[str, Any]:
    log_engine_events(logger)(signal)
    [line] = capture.entries
    return dict(line)


def test_a_finished_record_is_logged_as_one_line_with_its_ids(logger: Any, capture: LogCapture) -> None:
    assert logged(logger, capture, attempt(duration=0.051234, attempts=2, facts=FACTS)) == {
        "log_level": "info",
        "event": "record handled",
        "lane": "retain",
        "handler": "retain",
        **FACTS,
        "outcome": "succeeded",
        "duration": 0.0512,
        "attempts": 2,
    }


@pytest.mark.parametrize(
    ("outcome", "reason", "level", "event"),
    [
        (AttemptOutcome.SKIPPED, SkipReason.NO_AGENT, "info", "record skipped"),
        (AttemptOutcome.IGNORED, None, "debug", "record ignored"),
        (AttemptOutcome.FAILED, Upstream.HINDSIGHT, "warning", "record handled without its upstream"),
        (AttemptOutcome.RETRIED, ParkReason.RETRY, "warning", "record will be retried"),
        (AttemptOutcome.RETRIED, ParkReason.DEAD_LETTER_UNAVAILABLE, "warning", "record will be retried"),
        (AttemptOutcome.RETRIED, ParkReason.NOT_YET, "info", "record waiting"),
        (AttemptOutcome.DEAD_LETTERED, DeadLetterReason.REJECTED, "warning", "record dead-lettered"),
    ],
)
def test_each_attempt_outcome_has_its_log_level_and_reason(
    logger: Any, capture: LogCapture, outcome: AttemptOutcome, reason: Any, level: str, event: str
) -> None:
    line = logged(logger, capture, attempt(outcome=outcome, reason=reason, delay=1.23456, error="500 for POST /x"))
    assert (line["log_level"], line["event"], line["outcome"]) == (level, event, outcome)
    assert line.get("reason") == reason
    assert line["error"] == "500 for POST /x"
    assert line.get("delay") == (1.235 if outcome is AttemptOutcome.RETRIED else None)


def test_a_bank_is_logged_as_its_hash(logger: Any, capture: LogCapture) -> None:
    bank = "paperclip::c::a::user::someone@example.com"
    line = logged(logger, capture, attempt(facts={"bank": bank}))
    assert line["bank_hash"] == bank_hash(bank)
    assert "bank" not in line
    assert "example.com" not in str(line)


def test_bank_hashes_are_short_stable_and_different() -> None:
    assert bank_hash("paperclip::c::a") == "acf9ba54641e"
    assert bank_hash("paperclip::c::b") != bank_hash("paperclip::c::a")
    assert len(bank_hash("\ud83d")) == 12


@pytest.mark.parametrize(
    ("signal", "line"),
    [
        (
            CommitFinished("retain", CommitResult.COMMITTED, 8),
            {"log_level": "debug", "event": "offsets committed", "partitions": 8},
        ),
        (
            CommitFinished("retain", CommitResult.UNKNOWN, 8, "timed out"),
            {"log_level": "warning", "event": "offsets not committed", "result": "unknown", "error": "timed out"},
        ),
        (
            Rebalanced("retain", RebalanceKind.ASSIGNED, 8, 0.12345),
            {"log_level": "info", "event": "partitions assigned", "partitions": 8, "seconds": 0.123, "drained": True},
        ),
        (
            Rebalanced("retain", RebalanceKind.REVOKED, 8, 3.0, drained=False),
            {"log_level": "warning", "event": "partitions revoked", "drained": False},
        ),
        (
            BreakerChanged("retain", Upstream.HINDSIGHT, BreakerReason.REFUSED, opened=True, error="401"),
            {"log_level": "warning", "upstream": "hindsight", "reason": "refused", "error": "401"},
        ),
        (
            BreakerChanged("retain", Upstream.HINDSIGHT, BreakerReason.REFUSED, opened=False),
            {"log_level": "info", "event": "breaker closed", "upstream": "hindsight"},
        ),
        (
            RecordsExpired("retain", "t", 3, 17),
            {"log_level": "warning", "topic": "t", "partition": 3, "records": 17},
        ),
        (PollFailed("retain", "boom"), {"log_level": "warning", "event": "poll failed", "error": "boom"}),
        (
            Stalled("retain", 61.26, "File …"),
            {"log_level": "error", "event": "no progress", "seconds": 61.3, "stack": "File …"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lane_events_are_logged(logger: Any, capture: LogCapture, signal: EngineEvent, line: dict[str, Any]) -> None:
    logged_line = logged(logger, capture, signal)
    assert logged_line["lane"] == "retain"
    assert {**logged_line, **line} == logged_line


def test_repeated_poll_failures_are_logged_once_per_lane(logger: Any, capture: LogCapture) -> None:
    notify = log_engine_events(logger)
    for lane in ("recall", "retain", "recall", "recall"):
        notify(PollFailed(lane, "boom"))
    assert [line["lane"] for line in capture.entries] == ["recall", "retain"]


def test_handler_warnings_are_throttled_and_hash_the_bank(logger: Any, capture: LogCapture) -> None:
    warn = warn_once(logger)
    warn("only the event's own agent is known", bank="paperclip::c::a", comment_id="c-1")
    warn("only the event's own agent is known", comment_id="c-2")
    warn("another")
    assert [(line["event"], line.get("bank_hash"), line.get("comment_id")) for line in capture.entries] == [
        ("only the event's own agent is known", bank_hash("paperclip::c::a"), "c-1"),
        ("another", None, None),
    ]
