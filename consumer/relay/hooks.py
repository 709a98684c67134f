"""What the relay reports, as data. Hooks turn it into log lines and metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import DownKind, HandlingError, Transient, Upstream, UpstreamDown
from consumer.http.transport import RequestTimeout
from consumer.paperclip.models import is_forbidden


class RelayState(StrEnum):
    """The state of following a company (closed: a metric label)."""

    FOLLOWING = "following"
    REFUSED = "refused"  # Paperclip does not know the key: wrong, expired, or its user is gone
    FORBIDDEN = "forbidden"  # the key may not read this company
    UNREACHABLE = "unreachable"  # no connection to Paperclip
    SLOW = "slow"  # no complete answer in time
    FAILING = "failing"  # 5xx, 429, a broken connection, an answer that is not Paperclip's
    BLOCKED = "blocked"  # Kafka does not take events


class Source(StrEnum):
    """What the relay reads of a company (closed)."""

    COMMENTS = "comments"
    RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Published:
    """Kafka has acknowledged events."""

    topic: str
    events: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The state of following a company. `retry_in`: seconds until the next poll."""

    company: str
    source: Source
    state: RelayState
    error: str = ""
    retry_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the operator, with its fields. `expected`: nothing is wrong."""

    message: str
    fields: Mapping[str, str | float]
    expected: bool = False


RelayEvent = Published | StateChanged | Notice
Hook = Callable[[RelayEvent], None]


def state_from_error(error: HandlingError) -> RelayState:
    """The state that a failed poll leads to."""
    if error.upstream is Upstream.KAFKA:
        return RelayState.BLOCKED
    if isinstance(error, UpstreamDown):
        return RelayState.REFUSED if error.kind is DownKind.REFUSED else RelayState.UNREACHABLE
    if is_forbidden(error):
        return RelayState.FORBIDDEN
    timed_out = isinstance(error, Transient) and isinstance(error.__cause__, RequestTimeout)
    return RelayState.SLOW if timed_out else RelayState.FAILING
