"""Reads Hindsight's queue from `/metrics`, or from `/stats` of the banks last written to if `/metrics` lacks it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer.errors import DownKind, HandlingError, UpstreamDown
from consumer.exporter.snapshot import Backlog, HindsightSnapshot, OperationStatus, OperationType
from consumer.hindsight.models import Stats
from consumer.memory.documents import Operation
from schemas.timestamps import parse_timestamp

T = TypeVar("T")

CONCURRENT_BANKS = 16
"""How many banks are asked side by side."""
UNFINISHED = (OperationStatus.PENDING, OperationStatus.PROCESSING)


class Hindsight(Protocol):
    """The requests to Hindsight. Each method raises from `consumer.errors`."""

    async def metrics(self) -> str | None: ...

    async def banks(self, limit: int) -> tuple[list[str], int]: ...

    async def stats(self, bank: str) -> Stats | None: ...

    async def oldest_operation(self, bank: str, status: str) -> Operation | None: ...


class HindsightReader:
    """Reads Hindsight's queue.

    Args:
        banks: how many banks to inspect for the age of the oldest operation and for `/stats`.
        time_limit: seconds for the inspection; banks that have not answered by then are left out.
        warn: tells the operator (event name and fields).
        now: seconds since the epoch.
    """

    def __init__(
        self,
        hindsight: Hindsight,
        banks: int,
        *,
        time_limit: float = 60.0,
        warn: Callable[..., None] = lambda _event, **_fields: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hindsight = hindsight
        self._banks = banks
        self._time_limit = time_limit
        self._warn = warn
        self._now = now

    async def read(self) -> HindsightSnapshot:
        """Read a snapshot. Raises from `consumer.errors`."""
        started = asyncio.get_running_loop().time()
        banks, total = await self._hindsight.banks(self._banks)
        observed = dict.fromkeys(banks)
        backlog, origin, busy = read_backlog(await self._hindsight.metrics() or ""), "/metrics", banks
        if backlog is None:
            answers = await self._ask_banks(self._hindsight.stats, banks, started + self._time_limit / 2)
            observed = dict.fromkeys(answers)
            stats = {bank: counts for bank, counts in answers.items() if counts is not None}
            backlog, origin = sum_stats(stats.values()), "/stats"
            busy = [bank for bank, counts in stats.items() if sum_stats([counts]).total(*UNFINISHED)]
        ages: dict[str, float] = {}
        if backlog.total(*UNFINISHED):
            ages = await self._ask_banks(self._age, busy, started + self._time_limit)
            observed = {bank: None for bank in observed if bank in ages or bank not in busy}
        if len(observed) < len(banks):
            self._warn("banks of Hindsight cannot be read: leaving them out", banks=len(banks) - len(observed))
        return HindsightSnapshot(origin, backlog, max(ages.values(), default=0.0), total, len(observed))

    async def _ask_banks(
        self, ask: Callable[[str], Awaitable[T]], banks: Sequence[str], deadline: float
    ) -> dict[str, T]:
        """Ask banks side by side; leave out those that fail or do not answer before the deadline.

        Raises:
            HandlingError: Hindsight cannot be reached, or no bank answers.
        """
        answers: dict[str, T] = {}
        failures: list[HandlingError] = []
        slots = asyncio.Semaphore(CONCURRENT_BANKS)

        async def ask_one(bank: str) -> None:
            async with slots:
                try:
                    answers[bank] = await ask(bank)
                except HandlingError as error:
                    if isinstance(error, UpstreamDown) and error.kind is DownKind.UNREACHABLE:
                        raise
                    failures.append(error)

        tasks = [asyncio.create_task(ask_one(bank)) for bank in banks]
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.gather(*tasks)
        except TimeoutError:
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if failures and not answers:
            raise failures[0]
        return answers

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

    Also None for any other page.

    Several processes of one Hindsight export the same counts of one database, distinguished by `api_worker`; the
    maximum counts. Counts of tenants and banks are summed. An empty queue has no series.
    """
    lines = [line for line in text.splitlines() if line.startswith(_NAMES)]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    try:
        samples = [sample for family in families for sample in family.samples]
    except ValueError:  # a page that is not metrics
        return None
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
