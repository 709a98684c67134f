"""What the engine and the handlers tell, as log lines."""

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
    """What stands for a bank in logs: bank ids can hold a user's e-mail address."""
    return hashlib.sha256(bank.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def log_signals(logger: FilteringBoundLogger) -> Hook:
    """A `Hook` that logs: one line for each attempt's end, warnings for what an operator should look at."""
    logger = logger.bind()  # once: structlog's proxy would do it for each line
    polls = Throttle(10.0)

    def notify(signal: EngineEvent) -> None:
        match signal:
            case AttemptFinished():
                _log_attempt(logger, signal)
            case CommitFinished(result=CommitResult.COMMITTED):
                logger.debug("offsets committed", lane=signal.lane, partitions=signal.partitions)
            case CommitFinished():
                logger.warning(
                    "offsets not committed",
                    lane=signal.lane,
                    result=signal.result,
                    partitions=signal.partitions,
                    error=signal.error,
                )
            case Rebalanced():
                log = logger.info if signal.drained else logger.warning
                log(
                    f"partitions {signal.kind}",
                    lane=signal.lane,
                    partitions=signal.partitions,
                    seconds=round(signal.seconds, 3),
                    drained=signal.drained,
                )
            case BreakerChanged():
                log = logger.warning if signal.opened else logger.info
                log(
                    "breaker opened: nothing new is started" if signal.opened else "breaker closed",
                    lane=signal.lane,
                    upstream=signal.upstream,
                    reason=signal.reason,
                    error=signal.error,
                )
            case RecordsExpired():
                logger.warning(
                    "retention removed records before they were read: audit --fix finds what is missing",
                    lane=signal.lane,
                    topic=signal.topic,
                    partition=signal.partition,
                    records=signal.records,
                )
            case PollFailed():
                if (held_back := polls.held_back(signal.lane)) is not None:
                    logger.warning("poll failed", lane=signal.lane, error=signal.error, held_back=held_back)
            case _:
                logger.error("no progress", lane=signal.lane, seconds=round(signal.seconds, 1), stack=signal.stack)

    return notify


def warn_once(logger: FilteringBoundLogger) -> Callable[..., None]:
    """The handlers' `warn`: an event is logged at most once in 10 minutes, with how many were held back."""
    throttle = Throttle(600.0)

    def warn(event: str, **fields: Any) -> None:
        if (held_back := throttle.held_back(event)) is not None:
            logger.warning(event, **_without_bank(fields), held_back=held_back)

    return warn


def _log_attempt(logger: FilteringBoundLogger, signal: AttemptFinished) -> None:
    level, text = _OUTCOMES[signal.outcome]
    if signal.reason is ParkReason.NOT_YET:
        level, text = "info", "record waits"
    fields: dict[str, Any] = {
        "lane": signal.lane,
        "handler": signal.handler,
        **_without_bank(signal.facts),
        "outcome": signal.outcome,
        "duration": round(signal.duration, 4),
        "attempts": signal.attempts,
    }
    if signal.reason is not None:
        fields["reason"] = signal.reason
    if signal.outcome is AttemptOutcome.RETRIED:
        fields["delay"] = round(signal.delay, 3)
    if signal.error:
        fields["error"] = signal.error
    getattr(logger, level)(text, **fields)


def _without_bank(facts: Mapping[str, Any]) -> dict[str, Any]:
    if "bank" not in facts:
        return dict(facts)
    return {
        **{name: fact for name, fact in facts.items() if name != "bank"},
        "bank_hash": bank_hash(str(facts["bank"])),
    }
