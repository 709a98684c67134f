"""Engine events and handler warnings as log lines."""

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from structlog.typing import FilteringBoundLogger

from consumer.observability.logs import Throttle
from consumer.stream.hooks import (
    AttemptFinished,
    AttemptOutcome,
    BreakerChanged,
    CommitFinished,
    CommitResult,
    EngineEvent,
    Hook,
    ParkReason,
    PollFailed,
    Rebalanced,
    RecordsExpired,
)

_OUTCOMES = {
    AttemptOutcome.SUCCEEDED: ("info", "record handled"),
    AttemptOutcome.SKIPPED: ("info", "record skipped"),
    AttemptOutcome.IGNORED: ("debug", "record ignored"),
    AttemptOutcome.FAILED: ("warning", "record handled without its upstream"),
    AttemptOutcome.RETRIED: ("warning", "record will be retried"),
    AttemptOutcome.DEAD_LETTERED: ("warning", "record dead-lettered"),
}


@lru_cache(1024)
def bank_hash(bank: str) -> str:
    """Replaces a bank id in logs: bank ids can contain a user's e-mail address."""
    return hashlib.sha256(bank.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def log_engine_events(logger: FilteringBoundLogger) -> Hook:
    """A `Hook` that logs one line per finished attempt, and warnings that an operator should look at."""
    logger = logger.bind()  # once; structlog's proxy would bind for each line
    polls = Throttle(10.0)

    def notify(event: EngineEvent) -> None:
        match event:
            case AttemptFinished():
                _log_attempt(logger, event)
            case CommitFinished(result=CommitResult.COMMITTED):
                logger.debug("offsets committed", lane=event.lane, partitions=event.partitions)
            case CommitFinished():
                logger.warning(
                    "offsets not committed",
                    lane=event.lane,
                    result=event.result,
                    partitions=event.partitions,
                    error=event.error,
                )
            case Rebalanced():
                log = logger.info if event.drained else logger.warning
                log(
                    f"partitions {event.kind}",
                    lane=event.lane,
                    partitions=event.partitions,
                    seconds=round(event.seconds, 3),
                    drained=event.drained,
                )
            case BreakerChanged():
                log = logger.warning if event.opened else logger.info
                log(
                    "breaker opened: no new records are started" if event.opened else "breaker closed",
                    lane=event.lane,
                    upstream=event.upstream,
                    reason=event.reason,
                    error=event.error,
                )
            case RecordsExpired():
                logger.warning(
                    "retention removed records before they were read: audit --fix restores missing comments",
                    lane=event.lane,
                    topic=event.topic,
                    partition=event.partition,
                    records=event.records,
                )
            case PollFailed():
                if (held_back := polls.held_back(event.lane)) is not None:
                    logger.warning("poll failed", lane=event.lane, error=event.error, held_back=held_back)
            case _:
                logger.error("no progress", lane=event.lane, seconds=round(event.seconds, 1), stack=event.stack)

    return notify


def warn_once(logger: FilteringBoundLogger) -> Callable[..., None]:
    """The handlers' `warn`: logs an event at most once in 10 minutes, with the number of suppressed ones."""
    throttle = Throttle(600.0)

    def warn(event: str, **fields: Any) -> None:
        if (held_back := throttle.held_back(event)) is not None:
            logger.warning(event, **_without_bank(fields), held_back=held_back)

    return warn


def _log_attempt(logger: FilteringBoundLogger, event: AttemptFinished) -> None:
    level, text = _OUTCOMES[event.outcome]
    if event.reason is ParkReason.NOT_YET:
        level, text = "info", "record waiting"
    fields: dict[str, Any] = {
        "lane": event.lane,
        "handler": event.handler,
        **_without_bank(event.facts),
        "outcome": event.outcome,
        "duration": round(event.duration, 4),
        "attempts": event.attempts,
    }
    if event.reason is not None:
        fields["reason"] = event.reason
    if event.outcome is AttemptOutcome.RETRIED:
        fields["delay"] = round(event.delay, 3)
    if event.error:
        fields["error"] = event.error
    getattr(logger, level)(text, **fields)


def _without_bank(facts: Mapping[str, Any]) -> dict[str, Any]:
    if "bank" not in facts:
        return dict(facts)
    return {
        **{name: fact for name, fact in facts.items() if name != "bank"},
        "bank_hash": bank_hash(str(facts["bank"])),
    }
