"""What the sources may have seen."""

from dataclasses import replace
from typing import Any

from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import (
    Backlog,
    GroupSeen,
    GroupState,
    HindsightSeen,
    KafkaSeen,
    OperationStatus,
    OperationType,
    Outcome,
)
from consumer.stream.records import Partition

NOW = 1_796_034_000.0

RECALL = GroupSeen("recall", ("runs",), 2, GroupState.STABLE, (Lag(Partition("runs", 0), 5, 7, 2, 12.5),))
RETAIN = GroupSeen(
    "retain",
    ("comments",),
    0,
    GroupState.EMPTY,
    (Lag(Partition("comments", 0), 3, 3, 0, 0.0), Lag(Partition("comments", 1), None, 4, 4, 60.0)),
)
KAFKA = KafkaSeen(
    (RECALL, RETAIN),
    {lag.partition: lag.end for group in (RECALL, RETAIN) for lag in group.lags},
    {"dead-letters": 9},
)
KINDS: list[OperationType] = [kind for kind in OperationType if kind is not OperationType.ALL]
OPERATIONS = {(kind, status): 0 for kind in KINDS for status in OperationStatus}
OPERATIONS[OperationType.RETAIN, OperationStatus.PENDING] = 4
OPERATIONS[OperationType.RETAIN, OperationStatus.FAILED] = 1
BACKLOG = Backlog(OPERATIONS, consolidation=11, consolidation_failed=2)
HINDSIGHT = HindsightSeen("/metrics", BACKLOG, oldest_pending=33.0, banks_known=60, banks_observed=50)


def seen_kafka(seen: KafkaSeen | None = KAFKA, **changes: Any) -> Outcome[KafkaSeen]:
    return replace(Outcome(seen, NOW, 0.2), **changes)


def seen_hindsight(seen: HindsightSeen | None = HINDSIGHT, **changes: Any) -> Outcome[HindsightSeen]:
    return replace(Outcome(seen, NOW, 0.3), **changes)
