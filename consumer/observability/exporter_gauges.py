"""The exporter's gauges, made at each scrape from the last outcomes: nothing is asked of anybody then."""

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import GroupState, HindsightSeen, KafkaSeen, Outcome, Source
from consumer.observability import metrics as names
from consumer.observability.metrics import Metric

Samples = Iterable[tuple[Sequence[str], float]]


class ExporterGauges(Collector):
    """Gauges of what was seen last. Of a source that did not answer, or not for `max_age` seconds, there are none.

    Args:
        now: seconds since the epoch.
    """

    def __init__(
        self,
        kafka: Callable[[], Outcome[KafkaSeen]],
        hindsight: Callable[[], Outcome[HindsightSeen]],
        max_age: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kafka = kafka
        self._hindsight = hindsight
        self._max_age = max_age
        self._now = now

    def describe(self) -> Iterable[Family]:
        return [_family(metric, ()) for metric in (*_KAFKA, *_HINDSIGHT, *_SOURCES)]

    def collect(self) -> Iterable[Family]:
        outcomes: dict[Source, Outcome[KafkaSeen] | Outcome[HindsightSeen]] = {
            Source.KAFKA: self._kafka(),
            Source.HINDSIGHT: self._hindsight(),
        }
        for metric, value in _SOURCES.items():
            yield _family(metric, (((source,), value(outcome)) for source, outcome in outcomes.items()))
        now = self._now()
        if kafka := self._kafka().fresh(now, self._max_age):
            yield from (_family(metric, samples(kafka)) for metric, samples in _KAFKA.items())
        if hindsight := self._hindsight().fresh(now, self._max_age):
            yield from (_family(metric, samples(hindsight)) for metric, samples in _HINDSIGHT.items())


def _per_partition(seen: KafkaSeen) -> Iterable[tuple[tuple[str, str, str], Lag]]:
    for group in seen.groups:
        for lag in group.lags:
            yield (group.name, lag.partition.topic, str(lag.partition.number)), lag


_SOURCES: dict[Metric, Callable[[Outcome[KafkaSeen] | Outcome[HindsightSeen]], float]] = {
    names.SNAPSHOT: lambda outcome: outcome.at,
    names.COLLECT_SUCCESS: lambda outcome: outcome.seen is not None,
    names.COLLECT_DURATION: lambda outcome: outcome.duration,
}
_KAFKA: dict[Metric, Callable[[KafkaSeen], Samples]] = {
    names.GROUP_LAG: lambda seen: ((labels, lag.records) for labels, lag in _per_partition(seen)),
    names.GROUP_LAG_SECONDS: lambda seen: ((labels, lag.seconds) for labels, lag in _per_partition(seen)),
    names.GROUP_COMMITTED: lambda seen: (
        (labels, lag.committed) for labels, lag in _per_partition(seen) if lag.committed is not None
    ),
    names.LOG_END: lambda seen: (((topic, str(number)), end) for (topic, number), end in seen.ends.items()),
    names.GROUP_WITHOUT_COMMIT: lambda seen: (
        ((group.name, topic), group.without_commit(topic)) for group in seen.groups for topic in group.topics
    ),
    names.GROUP_MEMBERS: lambda seen: (((group.name,), group.members) for group in seen.groups),
    names.GROUP_STATE: lambda seen: (
        ((group.name, state), group.state is state) for group in seen.groups for state in GroupState
    ),
    names.DEAD_LETTER_DEPTH: lambda seen: (((topic,), records) for topic, records in seen.dead_letters.items()),
}
_HINDSIGHT: dict[Metric, Callable[[HindsightSeen], Samples]] = {
    names.QUEUE_DEPTH: lambda seen: seen.backlog.operations.items(),
    names.CONSOLIDATION_BACKLOG: lambda seen: [((), seen.backlog.consolidation)],
    names.CONSOLIDATION_FAILED: lambda seen: [((), seen.backlog.consolidation_failed)],
    names.OLDEST_PENDING: lambda seen: [((), seen.oldest_pending)],
    names.BANKS_KNOWN: lambda seen: [((), seen.banks_known)],
    names.BANKS_OBSERVED: lambda seen: [((), seen.banks_observed)],
}


def _family(metric: Metric, samples: Samples) -> Family:
    family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
