"""How far a group is behind: arithmetic on offsets and times. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consumer.stream.records import Partition


@dataclass(frozen=True, slots=True)
class Log:
    """The offsets of a partition: from `start`, the first that retention has left, up to `end`, the next to come."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one partition.

    Attributes:
        committed: None if the group has committed nothing there.
        end: where the log ends.
        records: offsets between the group's position and the end: an upper bound, since markers of transactions and
            holes that compaction left are no records.
        seconds: age of the first record that the group has not read; 0 if there is none.
    """

    partition: Partition
    committed: int | None
    end: int
    records: int
    seconds: float


def position(committed: int | None, log: Log) -> int:
    """The offset that the group reads next: what it committed, but nothing that retention has removed.

    Without a commit it is the log's start: the lanes' reset policy is `earliest`.
    """
    return log.start if committed is None else max(committed, log.start)


def lag_records(committed: int | None, log: Log) -> int:
    """max(0, end - position).

    A commit beyond the end (a topic that was made anew, a log that lost its tail) counts as 0, until the group's
    consumer has found out and begun again.
    """
    return max(0, log.end - position(committed, log))


def lag_seconds(first: float | None, now: float) -> float:
    """Age of the first record that is not read.

    Args:
        first: its timestamp, seconds since the epoch; None if there is none. A producer's clock may be ahead of ours.
    """
    return 0.0 if first is None else max(0.0, now - first)


def unread(committed: Mapping[Partition, int], logs: Mapping[Partition, Log]) -> dict[Partition, int]:
    """The partitions with a lag, and where the first record that is not read must be looked for."""
    return {
        partition: position(committed.get(partition), log)
        for partition, log in logs.items()
        if lag_records(committed.get(partition), log)
    }


def lags(
    committed: Mapping[Partition, int], logs: Mapping[Partition, Log], firsts: Mapping[Partition, float], now: float
) -> tuple[Lag, ...]:
    """The lag of one group, in the order of its partitions.

    Args:
        committed: what the group has committed. A partition whose topic was deleted since has no log, and no lag.
        logs: every partition that the group reads.
        firsts: timestamp of the first record at or after `unread`, where there is one: only markers can follow.
        now: seconds since the epoch.
    """
    return tuple(
        Lag(
            partition,
            committed.get(partition),
            log.end,
            lag_records(committed.get(partition), log),
            lag_seconds(firsts.get(partition), now),
        )
        for partition, log in sorted(logs.items())
    )


def depth(logs: Iterable[Log]) -> int:
    """How many offsets these partitions hold."""
    return sum(log.end - log.start for log in logs)
