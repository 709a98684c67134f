"""The relay's log lines and metrics."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from consumer.observability.logs import Throttle
from consumer.observability.metrics import PAPERCLIP_SKEW, RELAY_COMPANIES, RELAY_LAG, RELAY_PUBLISHED
from consumer.observability.prometheus import counter, gauge_family
from consumer.relay.hooks import Hook, Notice, Published, RelayEvent, RelayState, Source, StateChanged


class RelayGauges(Collector):
    """The relay's gauges, computed at each scrape.

    Args:
        topics: the topic of each source.
        caught_up_at: time of the last complete read of a source, seconds since the epoch.
        states: the state of each company.
        skew: seconds that Paperclip's clock is behind ours.
    """

    def __init__(
        self,
        topics: Mapping[Source, str],
        caught_up_at: Callable[[Source], float],
        states: Callable[[], Iterable[RelayState]],
        skew: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._skew = skew
        self._topics = topics
        self._caught_up_at = caught_up_at
        self._states = states
        self._now = now

    def collect(self) -> Iterable[Family]:
        now, tally = self._now(), Tally(self._states())
        lags = (((topic,), max(0.0, now - self._caught_up_at(source))) for source, topic in self._topics.items())
        yield gauge_family(RELAY_LAG, lags)
        yield gauge_family(PAPERCLIP_SKEW, [((), self._skew())])
        yield gauge_family(RELAY_COMPANIES, (((state,), tally[state]) for state in RelayState))


def count_published(registry: CollectorRegistry, topics: Iterable[str]) -> Hook:
    """A hook that counts the events that Kafka has acknowledged."""
    published = counter(registry, RELAY_PUBLISHED)
    children = {topic: published.labels(topic) for topic in topics}

    def hook(event: RelayEvent) -> None:
        if isinstance(event, Published):
            children[event.topic].inc(event.events)

    return hook


def log_relay(logger: FilteringBoundLogger) -> Hook:
    """A hook that logs changes of state; a repeated line at most every 10 minutes."""
    throttle = Throttle(600.0)
    states: dict[tuple[str, Source], RelayState] = {}

    def hook(event: RelayEvent) -> None:
        match event:
            case StateChanged(company, source, state, error, retry_in):
                previous = states.get((company, source))
                states[company, source] = state
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
            case Notice(message, fields, expected=True):
                logger.info(message, **fields)
            case Notice(message, fields):
                if (held_back := throttle.held_back((message, fields.get("company")))) is not None:
                    logger.warning(message, **fields, held_back=held_back)
            case Published():
                logger.debug("events published", topic=event.topic, events=event.events)

    return hook
