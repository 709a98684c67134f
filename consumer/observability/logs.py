"""Logging to standard error: one line per event, as JSON or for people.

Our own lines go through structlog. Lines of libraries (aiokafka, asyncio) come through the standard library in the same
format: warnings and above, at most one of a kind in 10 s. No line contains a body or a key.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

import structlog
from structlog.typing import Processor

from consumer.memory.sanitize import printable
from consumer.settings.types import LogFormat, LogLevel

REDACTED = "[redacted]"


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Set up logging for this process; a second call replaces the first."""
    severity = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer = _renderer(log_format)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitFilter(Throttle(10.0)))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(("held_back",)), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(severity, logging.WARNING), force=True)


def _renderer(log_format: LogFormat) -> Processor:
    if log_format is LogFormat.CONSOLE:
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        return lambda logger, method, event: console(logger, method, _without_control_characters(event))
    return _as_json


def _without_control_characters(event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Texts of records must not control the terminal. Stacks and tracebacks are ours, and have several lines."""
    for key, value in event.items():
        if isinstance(value, str) and key not in ("stack", "exception"):
            event[key] = printable(value)
    return event


_encode = json.JSONEncoder(default=repr).encode  # structlog's own renderer creates an encoder for each line


def _as_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(event)


_HIDDEN = frozenset(
    {
        *("authorization", "cookie", "set_cookie", "api_key", "apikey", "key", "password", "secret", "token"),
        *("body", "content", "payload", "memories", "query", "snippet", "title", "description"),
    }
)
_HIDDEN_ENDINGS = tuple(f"_{word}" for word in ("api_key", "password", "secret", "token", "body", "content", "snippet"))
_CREDENTIALS = re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Redact values whose names suggest a secret or a text, and credentials inside other values."""
    for key, value in event.items():
        event[key] = _redacted(key, value)
    return event


@lru_cache(256)
def _hidden(key: str) -> bool:
    name = key.lower().replace("-", "_")
    return name in _HIDDEN or name.endswith(_HIDDEN_ENDINGS)


def _redacted(key: str, value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if _hidden(key):
        return REDACTED
    if isinstance(value, str):
        return _CREDENTIALS.sub(rf"\1 {REDACTED}", value) if " " in value else value
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted("", item) for item in value]
    return value


class Throttle:
    """Passes one event of a kind per interval.

    Args:
        interval: seconds.
        now: monotonic clock, seconds.
        kinds: how many kinds to remember; beyond that, all are forgotten.
    """

    def __init__(self, interval: float, now: Callable[[], float] = time.monotonic, kinds: int = 1000) -> None:
        self._interval = interval
        self._now = now
        self._kinds = kinds
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def held_back(self, kind: Hashable) -> int | None:
        """How many of this kind were suppressed since the last one that passed; None to suppress this one too."""
        now = self._now()
        at, count = self._seen.get(kind, (float("-inf"), 0))
        if now - at < self._interval:
            self._seen[kind] = (at, count + 1)
            return None
        if len(self._seen) >= self._kinds:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        return count


class RateLimitFilter(logging.Filter):
    """Suppresses frequent lines of one logger and template, such as aiokafka's while a broker is down."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__()
        self._throttle = throttle

    def filter(self, record: logging.LogRecord) -> bool:
        held_back = self._throttle.held_back((record.name, str(record.msg)))
        if held_back:
            record.held_back = held_back
        return held_back is not None
