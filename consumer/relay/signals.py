"""What the relay tells the world, as data: adapters make log lines and metrics of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from consumer.errors import DownKind, HandlingError, Transient, Upstream, UpstreamDown
from consumer.http.transport import RequestTimeout
from consumer.paperclip.models import is_forbidden


class RelayState(StrEnum):
    """How following a company goes (closed: a metric label)."""

    FOLLOWING = "following"
    REFUSED = "refused"  # Paperclip takes our key for nobody's: wrong, expired, or its user is gone
    FORBIDDEN = "forbidden"  # the key may not read this company
    UNREACHABLE = "unreachable"  # no connection to Paperclip
    SLOW = "slow"  # no whole answer in time
    FAILING = "failing"  # 5xx, 429, a broken connection, an answer that is not Paperclip's
    BLOCKED = "blocked"  # Kafka does not take what was read


class Source(StrEnum):
    """What is read of a company (closed)."""

    COMMENTS = "comments"
    RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Published:
    """Kafka has acknowledged events."""

    topic: str
    events: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Following a company goes otherwise than before; `retry_in`: seconds until the next look."""

    company: str
    source: Source
    state: RelayState
    error: str = ""
    retry_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """Something an operator should know; `fields` name it. `expected`: nothing is wrong."""

    event: str
    fields: Mapping[str, str | float]
    expected: bool = False


RelaySignal = Published | Moved | Told
Notify = Callable[[RelaySignal], None]


def state_of(error: HandlingError) -> RelayState:
    """What an error says of following a company."""
    if error.upstream is Upstream.KAFKA:
        return RelayState.BLOCKED
    if isinstance(error, UpstreamDown):
        return RelayState.REFUSED if error.kind is DownKind.REFUSED else RelayState.UNREACHABLE
    if is_forbidden(error):
        return RelayState.FORBIDDEN
    timed_out = isinstance(error, Transient) and isinstance(error.__cause__, RequestTimeout)
    return RelayState.SLOW if timed_out else RelayState.FAILING
