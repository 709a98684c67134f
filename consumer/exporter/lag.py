"""How far a group is behind: arithmetic on offsets and times. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consumer.stream.records import Partition

OLDEST_TIMESTAMP = 1_420_070_400.0
"""Seconds since the epoch: the year 2015, before Kafka's records had timestamps."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition: from `start`, the first that retention has kept, to `end`, the next to be written."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a group in one partition.

    Attributes:
        committed: None if the group has never committed there.
        end: log end offset.
        records: offsets between the group's position and the log end. An upper bound: transaction markers and
            compacted records are counted too.
        seconds: age of the first unread record; 0 if there is none.
    """

    partition: Partition
    committed: int | None
    end: int
    records: int
    seconds: float


def position(committed: int | None, log: OffsetRange) -> int:
    """The offset that the group reads next: the committed one, unless retention has removed it.

    Without a commit it is the start of the log: the lanes' reset policy is `earliest`.
    """
    return log.start if committed is None else max(committed, log.start)


def lag_records(committed: int | None, log: OffsetRange) -> int:
    """max(0, end - position).

    A commit beyond the end (a recreated topic, a log that lost its tail) counts as 0 until the group's consumer has
    noticed and starts over.
    """
    return max(0, log.end - position(committed, log))


def lag_seconds(first: float | None, now: float, observed: float) -> float:
    """Age of the first unread record.

    Args:
        first: its timestamp, seconds since the epoch; None if there is none. A producer may write any time: one before
            `OLDEST_TIMESTAMP` is ignored.
        observed: for how long the record has been seen, by our own clock.
    """
    if first is None:
        return 0.0
    return max(observed, now - first if first >= OLDEST_TIMESTAMP else 0.0)


def lagging(committed: Mapping[Partition, int], logs: Mapping[Partition, OffsetRange]) -> dict[Partition, int]:
    """The partitions with lag, and the offset of their first unread record."""
    return {
        partition: position(committed.get(partition), log)
        for partition, log in logs.items()
        if lag_records(committed.get(partition), log)
    }


class EndHistory:
    """When each log end was first seen, to know by our own clock for how long a record has been there.

    Args:
        size: samples that are kept of each partition.
    """

    def __init__(self, size: int = 2_000) -> None:
        self._size = size
        self._samples: dict[Partition, deque[tuple[int, float]]] = {}

    def note(self, logs: Mapping[Partition, OffsetRange], now: float) -> None:
        """Note the log ends at this time."""
        for partition, log in logs.items():
            samples = self._samples.setdefault(partition, deque(maxlen=self._size))
            if samples and log.end < samples[-1][0]:
                samples.clear()  # a topic that was made anew
            if not samples or log.end > samples[-1][0]:
                samples.append((log.end, now))

    def age(self, partition: Partition, offset: int, now: float) -> float:
        """At least how long the record at this offset has been there; 0 if it was never seen."""
        samples = self._samples.get(partition, ())
        return next((now - at for end, at in samples if end > offset), 0.0)


def lags(
    committed: Mapping[Partition, int],
    logs: Mapping[Partition, OffsetRange],
    firsts: Mapping[Partition, float],
    history: EndHistory,
    now: float,
) -> tuple[Lag, ...]:
    """The lag of one group in each partition, sorted.

    Args:
        committed: the group's commits. A partition of a deleted topic has no log and so no lag.
        logs: every partition that the group reads.
        history: of the log ends.
        firsts: timestamps of the first records at or after `lagging`; none where only transaction markers follow.
        now: seconds since the epoch.
    """
    return tuple(
        Lag(
            partition,
            committed.get(partition),
            log.end,
            lag_records(committed.get(partition), log),
            lag_seconds(
                firsts.get(partition), now, history.age(partition, position(committed.get(partition), log), now)
            ),
        )
        for partition, log in sorted(logs.items())
    )


def depth(logs: Iterable[OffsetRange]) -> int:
    """How many offsets these partitions hold."""
    return sum(log.end - log.start for log in logs)
