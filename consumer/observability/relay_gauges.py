"""What the relay tells, as log lines and metrics."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from consumer.observability.logs import Throttle
from consumer.observability.metrics import RELAY_COMPANIES, RELAY_LAG, RELAY_PUBLISHED
from consumer.relay.signals import Moved, Notify, Published, RelaySignal, RelayState, Source, Told


class RelayGauges(Collector):
    """How the relay stands, at each scrape.

    Args:
        topics: the topic of each source.
        read_at: since when all of a source has been read, seconds since the epoch.
        states: how following goes, a company at a time.
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
        lag = GaugeMetricFamily(RELAY_LAG.full_name, RELAY_LAG.help, labels=RELAY_LAG.labels)
        for source, topic in self._topics.items():
            lag.add_metric([topic], max(0.0, self._now() - self._read_at(source)))
        yield lag
        companies = GaugeMetricFamily(RELAY_COMPANIES.full_name, RELAY_COMPANIES.help, labels=RELAY_COMPANIES.labels)
        tally = Tally(self._states())
        for state in RelayState:
            companies.add_metric([state], tally[state])
        yield companies


def count_published(registry: CollectorRegistry, topics: Iterable[str]) -> Notify:
    """A `Notify` that counts what Kafka has acknowledged."""
    counter = Counter(RELAY_PUBLISHED.full_name, RELAY_PUBLISHED.help, RELAY_PUBLISHED.labels, registry=registry)
    children = {topic: counter.labels(topic) for topic in topics}

    def notify(signal: RelaySignal) -> None:
        if isinstance(signal, Published):
            children[signal.topic].inc(signal.events)

    return notify


def log_relay(logger: FilteringBoundLogger) -> Notify:
    """A `Notify` that logs how following goes; what repeats at most every 10 minutes."""
    throttle = Throttle(600.0)
    last: dict[tuple[str, Source], RelayState] = {}

    def notify(signal: RelaySignal) -> None:
        match signal:
            case Moved(company, source, state, error, retry_in):
                known = last.get((company, source))
                last[company, source] = state
                held_back = throttle.held_back((company, source, state))
                if state is RelayState.FOLLOWING:
                    logger.info("a company is followed again", company=company, source=source)
                elif state is not known or held_back is not None:
                    logger.warning(
                        "a company is not followed",
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
                logger.debug("published", topic=signal.topic, events=signal.events)

    return notify
