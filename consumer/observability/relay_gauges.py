"""The relay's log lines and metrics."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from consumer.observability.logs import Throttle
from consumer.observability.metrics import RELAY_COMPANIES, RELAY_LAG, RELAY_PUBLISHED
from consumer.observability.prometheus import counter, gauge_family
from consumer.relay.signals import Moved, Notify, Published, RelaySignal, RelayState, Source, Told


class RelayGauges(Collector):
    """The relay's gauges, computed at each scrape.

    Args:
        topics: the topic of each source.
        read_at: time of the last complete read of a source, seconds since the epoch.
        states: the state of each company.
    """

    def __init__(
        self,
        topics: Mapping[Source, str],
        read_at: Callable[[Source], float],
        states: Callable[[], Iterable[RelayState]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._topics = topics
        self._read_at = read_at
        self._states = states
        self._now = now

    def collect(self) -> Iterable[Family]:
        now, tally = self._now(), Tally(self._states())
        lags = (((topic,), max(0.0, now - self._read_at(source))) for source, topic in self._topics.items())
        yield gauge_family(RELAY_LAG, lags)
        yield gauge_family(RELAY_COMPANIES, (((state,), tally[state]) for state in RelayState))


def count_published(registry: CollectorRegistry, topics: Iterable[str]) -> Notify:
    """A `Notify` that counts the events that Kafka has acknowledged."""
    published = counter(registry, RELAY_PUBLISHED)
    children = {topic: published.labels(topic) for topic in topics}

    def notify(signal: RelaySignal) -> None:
        if isinstance(signal, Published):
            children[signal.topic].inc(signal.events)

    return notify


def log_relay(logger: FilteringBoundLogger) -> Notify:
    """A `Notify` that logs changes of state; a repeated line at most every 10 minutes."""
    throttle = Throttle(600.0)
    last: dict[tuple[str, Source], RelayState] = {}

    def notify(signal: RelaySignal) -> None:
        match signal:
            case Moved(company, source, state, error, retry_in):
                previous = last.get((company, source))
                last[company, source] = state
                held_back = throttle.held_back((company, source, state))
                if state is RelayState.FOLLOWING:
                    logger.info("following company again", company=company, source=source)
                elif state is not previous or held_back is not None:
                    logger.warning(
                        "not following company",
                        company=company,
                        source=source,
                        state=state,
                        error=error,
                        retry_in=round(retry_in, 1),
                    )
            case Told(event, fields, expected=True):
                logger.info(event, **fields)
            case Told(event, fields):
                if (held_back := throttle.held_back((event, fields.get("company")))) is not None:
                    logger.warning(event, **fields, held_back=held_back)
            case Published():
                logger.debug("events published", topic=signal.topic, events=signal.events)

    return notify
