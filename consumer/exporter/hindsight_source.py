"""What Hindsight says of its queue: its `/metrics`, or where these lack it, `/stats` of the banks last written to."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer.exporter.snapshot import Backlog, HindsightSeen, OperationStatus, OperationType
from consumer.handlers.context import Operation
from consumer.memory.documents import Stats

UNFINISHED = (OperationStatus.PENDING, OperationStatus.PROCESSING)


class Hindsight(Protocol):
    """What is asked of Hindsight. Each method raises from `consumer.errors`."""

    async def metrics(self) -> str: ...

    async def banks(self, limit: int) -> tuple[list[str], int]: ...

    async def stats(self, bank: str) -> Stats | None: ...

    async def oldest_operation(self, bank: str, status: str) -> Operation | None: ...


class HindsightWatch:
    """Looks at Hindsight's queue. Banks are asked one after another: Hindsight has other things to do.

    Args:
        banks: how many banks are looked into, for the age of the oldest operation, and for `/stats`.
        now: seconds since the epoch.
    """

    def __init__(self, hindsight: Hindsight, banks: int, now: Callable[[], float] = time.time) -> None:
        self._hindsight = hindsight
        self._banks = banks
        self._now = now

    async def look(self) -> HindsightSeen:
        """Ask now. Raises from `consumer.errors`."""
        banks, known = await self._hindsight.banks(self._banks)
        backlog, origin, busy = read_backlog(await self._hindsight.metrics()), "/metrics", banks
        if backlog is None:
            stats = {bank: found for bank in banks if (found := await self._hindsight.stats(bank))}
            backlog, origin = sum_stats(stats.values()), "/stats"
            busy = [bank for bank, each in stats.items() if sum_stats([each]).total(*UNFINISHED)]
        ages = [await self._age(bank) for bank in busy] if backlog.total(*UNFINISHED) else []
        return HindsightSeen(origin, backlog, max(ages, default=0.0), known, len(banks))

    async def _age(self, bank: str) -> float:
        """Seconds since the oldest operation of a bank that is not over was made; 0 if there is none."""
        ages = [0.0]
        for status in UNFINISHED:
            oldest = await self._hindsight.oldest_operation(bank, status)
            if oldest is not None and oldest.created_at is not None:
                made = datetime.fromisoformat(oldest.created_at)
                ages.append(self._now() - (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp())
        return max(ages)


def read_backlog(text: str) -> Backlog | None:
    """The backlog that Hindsight's `/metrics` tell; None if they do not (HINDSIGHT_API_METRICS_BACKLOG_ENABLED is off).

    Several processes of one Hindsight export the same counts of the same database, told apart by `api_worker`: of these
    the largest counts. Tenants and banks have counts of their own, which are summed. A queue that is empty has no
    series.
    """
    lines = [line for line in text.splitlines() if line.startswith(_NAMES)]
    samples = [each for family in text_string_to_metric_families("\n".join(lines) + "\n") for each in family.samples]
    if not any(sample.name == _CONSOLIDATION for sample in samples):
        return None
    operations: dict[tuple[OperationType, OperationStatus], int] = {
        (kind, status): 0 for kind in _KINDS for status in OperationStatus
    }
    for labels, count in _counts(samples, _OPERATIONS):
        kind, status = labels.get("operation_type"), labels.get("status")
        if status in _STATUSES:
            operations[OperationType(kind) if kind in _KINDS else OperationType.OTHER, OperationStatus(status)] += count
    waiting, failed = (
        sum(count for _, count in _counts(samples, name)) for name in (_CONSOLIDATION, _CONSOLIDATION_FAILED)
    )
    return Backlog(operations, waiting, failed)


def sum_stats(stats: Iterable[Stats]) -> Backlog:
    """The backlog of these banks together; `/stats` do not tell the type of an operation."""
    banks = list(stats)

    def count(status: OperationStatus) -> int:
        return sum(each.operations_by_status.get(status, _older(each).get(status, 0)) for each in banks)

    return Backlog(
        {(OperationType.ALL, status): count(status) for status in OperationStatus},
        sum(each.pending_consolidation for each in banks),
        sum(each.failed_consolidation for each in banks),
    )


def _older(stats: Stats) -> dict[OperationStatus, int]:
    """What Hindsights say that have no `operations_by_status`."""
    return {
        OperationStatus.PENDING: stats.pending_operations,
        OperationStatus.FAILED: stats.failed_operations,
    }


_OPERATIONS = "hindsight_async_operations"
_CONSOLIDATION = "hindsight_consolidation_backlog"
_CONSOLIDATION_FAILED = "hindsight_consolidation_failed"
_NAMES = (_OPERATIONS, _CONSOLIDATION, _CONSOLIDATION_FAILED)
_KINDS: tuple[OperationType, ...] = tuple(kind for kind in OperationType if kind is not OperationType.ALL)
_STATUSES = frozenset(OperationStatus)
_PROCESS = "api_worker"


def _counts(samples: Iterable[Sample], name: str) -> Iterable[tuple[dict[str, str], int]]:
    """Labels and count of each series of this name; of those that differ only by process, the largest."""
    largest: dict[tuple[tuple[str, str], ...], int] = {}
    for sample in samples:
        if sample.name == name:
            series = tuple(sorted((label, value) for label, value in sample.labels.items() if label != _PROCESS))
            largest[series] = max(largest.get(series, 0), int(sample.value))
    return ((dict(series), count) for series, count in largest.items())
