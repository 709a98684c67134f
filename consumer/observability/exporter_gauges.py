"""The exporter's gauges, computed at each scrape from the last poll; a scrape sends no requests."""

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import GroupState, HindsightSnapshot, KafkaSnapshot, LastPoll, Source
from consumer.observability import metrics as names
from consumer.observability.metrics import Metric
from consumer.observability.prometheus import gauge_family

Samples = Iterable[tuple[Sequence[str], float]]
AnyPoll = LastPoll[KafkaSnapshot] | LastPoll[HindsightSnapshot]


class ExporterGauges(Collector):
    """Gauges of the last snapshots. A source that did not answer within `max_age` seconds has none.

    Args:
        now: seconds since the epoch.
    """

    def __init__(
        self,
        kafka: Callable[[], LastPoll[KafkaSnapshot]],
        hindsight: Callable[[], LastPoll[HindsightSnapshot]],
        max_age: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kafka = kafka
        self._hindsight = hindsight
        self._max_age = max_age
        self._now = now

    def describe(self) -> Iterable[Family]:
        return [gauge_family(metric, ()) for metric in (*_KAFKA, *_HINDSIGHT, *_SOURCES)]

    def collect(self) -> Iterable[Family]:
        polls: dict[Source, AnyPoll] = {Source.KAFKA: self._kafka(), Source.HINDSIGHT: self._hindsight()}
        for metric, value in _SOURCES.items():
            yield gauge_family(metric, (((source,), value(poll)) for source, poll in polls.items()))
        now = self._now()
        if kafka := self._kafka().fresh(now, self._max_age):
            yield from (gauge_family(metric, samples(kafka)) for metric, samples in _KAFKA.items())
        if hindsight := self._hindsight().fresh(now, self._max_age):
            yield from (gauge_family(metric, samples(hindsight)) for metric, samples in _HINDSIGHT.items())


def _per_partition(kafka: KafkaSnapshot) -> Iterable[tuple[tuple[str, str, str], Lag]]:
    for group in kafka.groups:
        for lag in group.lags:
            yield (group.name, lag.partition.topic, str(lag.partition.number)), lag


_SOURCES: dict[Metric, Callable[[AnyPoll], float]] = {
    names.SNAPSHOT: lambda poll: poll.at,
    names.COLLECT_SUCCESS: lambda poll: poll.snapshot is not None,
    names.COLLECT_DURATION: lambda poll: poll.duration,
}
_KAFKA: dict[Metric, Callable[[KafkaSnapshot], Samples]] = {
    names.GROUP_LAG: lambda kafka: ((labels, lag.records) for labels, lag in _per_partition(kafka)),
    names.GROUP_LAG_SECONDS: lambda kafka: ((labels, lag.seconds) for labels, lag in _per_partition(kafka)),
    names.GROUP_COMMITTED: lambda kafka: (
        (labels, lag.committed) for labels, lag in _per_partition(kafka) if lag.committed is not None
    ),
    names.LOG_END: lambda kafka: (((topic, str(number)), end) for (topic, number), end in kafka.ends.items()),
    names.GROUP_WITHOUT_COMMIT: lambda kafka: (
        ((group.name, topic), group.without_commit(topic)) for group in kafka.groups for topic in group.topics
    ),
    names.GROUP_MEMBERS: lambda kafka: (((group.name,), group.members) for group in kafka.groups),
    names.GROUP_STATE: lambda kafka: (
        ((group.name, state), group.state is state) for group in kafka.groups for state in GroupState
    ),
    names.COLLECT_MISSING: lambda kafka: [((Source.KAFKA,), len(kafka.missing))],
    names.DEAD_LETTER_DEPTH: lambda kafka: (((topic,), records) for topic, records in kafka.dead_letters.items()),
}
_HINDSIGHT: dict[Metric, Callable[[HindsightSnapshot], Samples]] = {
    names.QUEUE_DEPTH: lambda hindsight: hindsight.backlog.operations.items(),
    names.CONSOLIDATION_BACKLOG: lambda hindsight: [((), hindsight.backlog.consolidation)],
    names.CONSOLIDATION_FAILED: lambda hindsight: [((), hindsight.backlog.consolidation_failed)],
    names.OLDEST_PENDING: lambda hindsight: [((), hindsight.oldest_pending)],
    names.BANKS_KNOWN: lambda hindsight: [((), hindsight.banks_known)],
    names.BANKS_OBSERVED: lambda hindsight: [((), hindsight.banks_observed)],
}
