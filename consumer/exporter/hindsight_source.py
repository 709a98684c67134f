"""Reads Hindsight's queue from `/metrics`, or from `/stats` of the banks last written to if `/metrics` lacks it."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer.exporter.snapshot import Backlog, HindsightSnapshot, OperationStatus, OperationType
from consumer.hindsight.models import Stats
from consumer.memory.documents import Operation
from schemas.timestamps import parse_timestamp

UNFINISHED = (OperationStatus.PENDING, OperationStatus.PROCESSING)


class Hindsight(Protocol):
    """The requests to Hindsight. Each method raises from `consumer.errors`."""

    async def metrics(self) -> str: ...

    async def banks(self, limit: int) -> tuple[list[str], int]: ...

    async def stats(self, bank: str) -> Stats | None: ...

    async def oldest_operation(self, bank: str, status: str) -> Operation | None: ...


class HindsightReader:
    """Reads Hindsight's queue. Banks are asked one after another, to keep the load on Hindsight low.

    Args:
        banks: how many banks to inspect for the age of the oldest operation and for `/stats`.
        now: seconds since the epoch.
    """

    def __init__(self, hindsight: Hindsight, banks: int, now: Callable[[], float] = time.time) -> None:
        self._hindsight = hindsight
        self._banks = banks
        self._now = now

    async def read(self) -> HindsightSnapshot:
        """Read a snapshot. Raises from `consumer.errors`."""
        banks, total = await self._hindsight.banks(self._banks)
        backlog, origin, busy = read_backlog(await self._hindsight.metrics()), "/metrics", banks
        if backlog is None:
            stats = {bank: counts for bank in banks if (counts := await self._hindsight.stats(bank))}
            backlog, origin = sum_stats(stats.values()), "/stats"
            busy = [bank for bank, counts in stats.items() if sum_stats([counts]).total(*UNFINISHED)]
        ages = [await self._age(bank) for bank in busy] if backlog.total(*UNFINISHED) else []
        return HindsightSnapshot(origin, backlog, max(ages, default=0.0), total, len(banks))

    async def _age(self, bank: str) -> float:
        """Age in seconds of a bank's oldest unfinished operation; 0 if there is none."""
        ages = [0.0]
        for status in UNFINISHED:
            oldest = await self._hindsight.oldest_operation(bank, status)
            if oldest is not None and oldest.created_at is not None:
                ages.append(self._now() - parse_timestamp(oldest.created_at))
        return max(ages)


def read_backlog(text: str) -> Backlog | None:
    """The backlog in Hindsight's `/metrics`; None if it is missing (HINDSIGHT_API_METRICS_BACKLOG_ENABLED is off).

    Several processes of one Hindsight export the same counts of one database, distinguished by `api_worker`; the
    maximum counts. Counts of tenants and banks are summed. An empty queue has no series.
    """
    lines = [line for line in text.splitlines() if line.startswith(_NAMES)]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    samples = [sample for family in families for sample in family.samples]
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
    """The summed backlog of banks; `/stats` does not tell the types of operations apart."""
    banks = list(stats)

    def count(status: OperationStatus) -> int:
        return sum(bank.operations_by_status.get(status, _older(bank).get(status, 0)) for bank in banks)

    return Backlog(
        {(OperationType.ALL, status): count(status) for status in OperationStatus},
        sum(bank.pending_consolidation for bank in banks),
        sum(bank.failed_consolidation for bank in banks),
    )


def _older(stats: Stats) -> dict[OperationStatus, int]:
    """The counts of older versions of Hindsight, which have no `operations_by_status`."""
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
    """Labels and count of each series of this name; the maximum over series that differ only by process."""
    largest: dict[tuple[tuple[str, str], ...], int] = {}
    for sample in samples:
        if sample.name == name:
            series = tuple(sorted((label, value) for label, value in sample.labels.items() if label != _PROCESS))
            largest[series] = max(largest.get(series, 0), int(sample.value))
    return ((dict(series), count) for series, count in largest.items())
