"""Snapshots of Kafka and Hindsight for tests."""

from dataclasses import replace
from typing import Any

from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import (
    Backlog,
    GroupSnapshot,
    GroupState,
    HindsightSnapshot,
    KafkaSnapshot,
    LastPoll,
    OperationStatus,
    OperationType,
)
from consumer.stream.records import Partition

NOW = 1_796_034_000.0

RECALL = GroupSnapshot("recall", ("runs",), 2, GroupState.STABLE, (Lag(Partition("runs", 0), 5, 7, 2, 12.5),))
RETAIN = GroupSnapshot(
    "retain",
    ("comments",),
    0,
    GroupState.EMPTY,
    (Lag(Partition("comments", 0), 3, 3, 0, 0.0), Lag(Partition("comments", 1), None, 4, 4, 60.0)),
)
KAFKA = KafkaSnapshot(
    (RECALL, RETAIN),
    {lag.partition: lag.end for group in (RECALL, RETAIN) for lag in group.lags},
    {"dead-letters": 9},
)
KINDS: list[OperationType] = [kind for kind in OperationType if kind is not OperationType.ALL]
OPERATIONS = {(kind, status): 0 for kind in KINDS for status in OperationStatus}
OPERATIONS[OperationType.RETAIN, OperationStatus.PENDING] = 4
OPERATIONS[OperationType.RETAIN, OperationStatus.FAILED] = 1
BACKLOG = Backlog(OPERATIONS, consolidation=11, consolidation_failed=2)
HINDSIGHT = HindsightSnapshot("/metrics", BACKLOG, oldest_pending=33.0, banks_known=60, banks_observed=50)


def polled_kafka(snapshot: KafkaSnapshot | None = KAFKA, **changes: Any) -> LastPoll[KafkaSnapshot]:
    return replace(LastPoll(snapshot, NOW, 0.2), **changes)


def polled_hindsight(snapshot: HindsightSnapshot | None = HINDSIGHT, **changes: Any) -> LastPoll[HindsightSnapshot]:
    return replace(LastPoll(snapshot, NOW, 0.3), **changes)
