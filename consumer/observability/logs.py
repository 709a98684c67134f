"""Logging: one line for each thing that happened, as JSON or for people, on standard error.

Our own lines go straight through structlog. Those of libraries (aiokafka, asyncio) come through the standard library,
from warnings up, in the same shape, and at most one of a kind in 10 s. No line holds a body or a key.
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
    handler.addFilter(OncePerKind(Throttle(10.0)))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(("held_back",)), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(severity, logging.WARNING), force=True)


def _renderer(log_format: LogFormat) -> Processor:
    if log_format is LogFormat.CONSOLE:
        return structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    return _as_json


_encode = json.JSONEncoder(default=repr).encode  # structlog's own renderer makes an encoder for each line


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
    """The safety net under what we log: hides what is named like a secret or a text, and credentials inside others."""
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
        return {inner: _redacted(str(inner), each) for inner, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted("", each) for each in value]
    return value


class Throttle:
    """Lets one thing of a kind through in an interval.

    Args:
        interval: seconds.
        now: seconds on a clock that never goes back.
        kinds: how many kinds to remember; beyond that all are forgotten.
    """

    def __init__(self, interval: float, now: Callable[[], float] = time.monotonic, kinds: int = 1000) -> None:
        self._interval = interval
        self._now = now
        self._kinds = kinds
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def held_back(self, kind: Hashable) -> int | None:
        """How many of this kind were held back since the last that went through; None: hold this one back too."""
        now = self._now()
        at, count = self._seen.get(kind, (float("-inf"), 0))
        if now - at < self._interval:
            self._seen[kind] = (at, count + 1)
            return None
        if len(self._seen) >= self._kinds:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        return count


class OncePerKind(logging.Filter):
    """Holds back lines of one logger with one template that come too fast: aiokafka's, while a broker is away."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__()
        self._throttle = throttle

    def filter(self, record: logging.LogRecord) -> bool:
        held_back = self._throttle.held_back((record.name, str(record.msg)))
        if held_back:
            record.held_back = held_back
        return held_back is not None
