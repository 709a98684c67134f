import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.exporter.hindsight_source import CONCURRENT_BANKS, HindsightReader, read_backlog, sum_stats
from consumer.exporter.snapshot import Backlog, OperationStatus, OperationType
from consumer.hindsight.models import Stats
from consumer.memory.documents import Operation
from demo.recording import exchange
from tests.unit.exporter.samples import NOW

PENDING, PROCESSING, FAILED = OperationStatus.PENDING, OperationStatus.PROCESSING, OperationStatus.FAILED
RETAIN, OTHER = OperationType.RETAIN, OperationType.OTHER
EMPTY = 'hindsight_consolidation_backlog{tenant="public"} 0.0\n'


def operations(*series: str) -> str:
    lines = "".join(f"hindsight_async_operations{{{labels}\n" for labels in series)
    return f"# TYPE hindsight_async_operations gauge\n{lines}{EMPTY}"


def nonzero(backlog: Backlog | None) -> Mapping[tuple[OperationType, OperationStatus], int]:
    """The counts that are not 0."""
    assert backlog is not None
    return {key: count for key, count in backlog.operations.items() if count}


# /metrics


def test_an_idle_hindsights_metrics_give_an_empty_backlog() -> None:
    text = exchange("metrics").reply
    assert isinstance(text, str)
    backlog = read_backlog(text)
    assert nonzero(backlog) == {}
    assert backlog is not None
    assert (backlog.consolidation, backlog.consolidation_failed) == (0, 0)
    assert len(backlog.operations) == 9 * 3, "an empty queue shows as zeros, for every type and status"


def test_metrics_without_a_backlog_give_none() -> None:
    assert read_backlog("") is None
    assert read_backlog('hindsight_http_requests_total{status="200"} 5.0\n') is None


def test_operations_are_counted_by_type_and_status() -> None:
    text = operations(
        'operation_type="retain",status="pending",tenant="public"} 7.0',
        'operation_type="retain",status="failed",tenant="public"} 1.0',
        'operation_type="something new",status="processing",tenant="public"} 2.0',
        'operation_type="retain",status="something new",tenant="public"} 9.0',
    )
    assert nonzero(read_backlog(text)) == {(RETAIN, PENDING): 7, (RETAIN, FAILED): 1, (OTHER, PROCESSING): 2}


def test_counts_take_the_maximum_over_processes_and_the_sum_over_tenants() -> None:
    text = operations(
        'operation_type="retain",status="pending",tenant="a",api_worker="0"} 7.0',
        'operation_type="retain",status="pending",tenant="a",api_worker="1"} 8.0',
        'operation_type="retain",status="pending",tenant="b",api_worker="0"} 5.0',
    )
    assert nonzero(read_backlog(text)) == {(RETAIN, PENDING): 13}


def test_consolidation_backlogs_of_banks_are_summed() -> None:
    text = (
        'hindsight_consolidation_backlog{tenant="t",bank_id="x"} 3.0\n'
        'hindsight_consolidation_backlog{tenant="t",bank_id="y"} 4.0\n'
        'hindsight_consolidation_failed{tenant="t",bank_id="y"} 2.0\n'
    )
    backlog = read_backlog(text)
    assert backlog is not None
    assert (backlog.consolidation, backlog.consolidation_failed) == (7, 2)


# /stats


def stats(**counts: int) -> Stats:
    by_status = {status: counts.pop(status, 0) for status in OperationStatus}
    return Stats(
        pending_operations=by_status[PENDING],
        failed_operations=by_status[FAILED],
        pending_consolidation=counts.pop("waiting", 0),
        failed_consolidation=counts.pop("stranded", 0),
        operations_by_status={status: count for status, count in by_status.items() if count},
    )


def test_stats_of_banks_are_summed() -> None:
    backlog = sum_stats([stats(pending=2, waiting=3), stats(pending=1, processing=4, failed=5, stranded=6)])
    every = OperationType.ALL
    assert backlog.operations == {(every, PENDING): 3, (every, PROCESSING): 4, (every, FAILED): 5}
    assert (backlog.consolidation, backlog.consolidation_failed) == (3, 6)
    assert backlog.total(PENDING, PROCESSING) == 7


def test_stats_of_an_older_hindsight_without_counts_by_status_are_read() -> None:
    old = Stats(pending_operations=2, failed_operations=3, pending_consolidation=0)
    assert nonzero(sum_stats([old])) == {(OperationType.ALL, PENDING): 2, (OperationType.ALL, FAILED): 3}


# HindsightReader


@dataclass
class FakeHindsight:
    text: str | None = EMPTY
    bank_ids: list[str] = field(default_factory=lambda: ["a", "b", "c"])
    by_bank: dict[str, Stats] = field(default_factory=dict)
    made: dict[tuple[str, str], str | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    down: bool = False
    failing: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    delay: float = 0.0
    running: int = 0
    most_running: int = 0

    async def metrics(self) -> str | None:
        if self.down:
            raise UpstreamDown("refused", upstream=Upstream.HINDSIGHT, kind=DownKind.UNREACHABLE)
        return self.text

    async def banks(self, limit: int) -> tuple[list[str], int]:
        return self.bank_ids[:limit], len(self.bank_ids)

    async def stats(self, bank: str) -> Stats | None:
        await self._answer(bank)
        return self.by_bank.get(bank)

    async def oldest_operation(self, bank: str, status: str) -> Operation | None:
        self.asked.append(bank)
        await self._answer(bank)
        if (bank, status) not in self.made:
            return None
        return Operation("id", "retain", status, None, self.made[bank, status])

    async def _answer(self, bank: str) -> None:
        if bank in self.failing:
            raise UpstreamDown("forbidden", upstream=Upstream.HINDSIGHT, kind=DownKind.REFUSED)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(3600 if bank in self.silent else self.delay)
        self.running -= 1


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).isoformat()


async def test_an_idle_hindsights_banks_are_not_asked() -> None:
    hindsight = FakeHindsight()
    snapshot = await HindsightReader(hindsight, 2, now=lambda: NOW).read()
    assert (snapshot.origin, snapshot.oldest_pending, snapshot.banks_known, snapshot.banks_observed) == (
        "/metrics",
        0.0,
        3,
        2,
    )
    assert hindsight.asked == []


async def test_the_oldest_unfinished_operation_of_the_observed_banks_gives_the_age() -> None:
    made: dict[tuple[str, str], str | None] = {
        ("a", "pending"): at(5),
        ("b", "pending"): at(7),
        ("b", "processing"): at(9000),
        ("c", "pending"): at(99_999),
    }
    hindsight = FakeHindsight(operations('operation_type="retain",status="processing"} 1.0'), made=made)
    snapshot = await HindsightReader(hindsight, 2, now=lambda: NOW).read()
    assert snapshot.oldest_pending == pytest.approx(9000)
    assert "c" not in hindsight.asked


async def test_an_operation_without_a_time_has_age_zero() -> None:
    hindsight = FakeHindsight(
        operations('operation_type="retain",status="pending"} 1.0'),
        made={("a", "pending"): None, ("b", "pending"): at(3)[:19]},
    )
    assert (await HindsightReader(hindsight, 3, now=lambda: NOW).read()).oldest_pending == pytest.approx(3)


async def test_without_a_backlog_in_metrics_the_stats_of_the_observed_banks_are_used() -> None:
    hindsight = FakeHindsight(
        "",
        by_bank={"a": stats(pending=3, waiting=2), "b": stats(failed=1), "c": stats(pending=50)},
        made={("a", "pending"): at(42)},
    )
    snapshot = await HindsightReader(hindsight, 2, now=lambda: NOW).read()
    assert snapshot.origin == "/stats"
    assert nonzero(snapshot.backlog) == {(OperationType.ALL, PENDING): 3, (OperationType.ALL, FAILED): 1}
    assert snapshot.backlog.consolidation == 2
    assert snapshot.oldest_pending == pytest.approx(42)
    assert set(hindsight.asked) == {"a"}, "a bank whose stats show nothing unfinished is not asked again"
    assert (snapshot.banks_known, snapshot.banks_observed) == (3, 2)


async def test_an_unavailable_hindsight_raises() -> None:
    with pytest.raises(UpstreamDown):
        await HindsightReader(FakeHindsight(down=True), 2).read()


@pytest.mark.parametrize("page", [None, "<html>Sign in</html>", 'hindsight_consolidation_backlog{tenant="'])
async def test_without_metrics_the_stats_of_the_observed_banks_are_used(page: str | None) -> None:
    hindsight = FakeHindsight(page, by_bank={"a": stats(pending=3)})
    snapshot = await HindsightReader(hindsight, 2, now=lambda: NOW).read()
    assert (snapshot.origin, snapshot.backlog.total(PENDING)) == ("/stats", 3)


async def test_a_bank_that_fails_is_left_out_and_the_operator_warned() -> None:
    warnings: list[tuple[str, dict[str, object]]] = []
    hindsight = FakeHindsight(None, by_bank={"a": stats(pending=3), "c": stats(pending=4)}, failing={"b"})
    reader = HindsightReader(hindsight, 3, warn=lambda event, **fields: warnings.append((event, fields)))
    snapshot = await reader.read()
    assert (snapshot.backlog.total(PENDING), snapshot.banks_observed) == (7, 2)
    assert warnings == [("banks of Hindsight cannot be read: leaving them out", {"banks": 1})]


async def test_a_bank_whose_operations_fail_is_left_out() -> None:
    text = operations('operation_type="retain",status="pending"} 1.0')
    hindsight = FakeHindsight(text, made={("a", "pending"): at(5)}, failing={"b"})
    snapshot = await HindsightReader(hindsight, 3, now=lambda: NOW).read()
    assert snapshot.oldest_pending == pytest.approx(5)
    assert snapshot.banks_observed == 2


async def test_banks_that_all_fail_raise() -> None:
    with pytest.raises(UpstreamDown, match="forbidden"):
        await HindsightReader(FakeHindsight(None, failing={"a", "b", "c"}), 3).read()


async def test_banks_that_do_not_answer_in_time_are_left_out() -> None:
    hindsight = FakeHindsight(None, by_bank={"a": stats(pending=3)}, silent={"b"})
    snapshot = await asyncio.wait_for(HindsightReader(hindsight, 3, time_limit=0.05).read(), 5)
    assert (snapshot.backlog.total(PENDING), snapshot.banks_observed) == (3, 2)


async def test_a_thousand_banks_are_asked_side_by_side() -> None:
    banks = [f"bank {number}" for number in range(1_000)]
    hindsight = FakeHindsight(None, banks, {bank: stats(pending=1) for bank in banks}, delay=0.001)
    snapshot = await HindsightReader(hindsight, 1_000).read()
    assert (snapshot.backlog.total(PENDING), snapshot.banks_observed) == (1_000, 1_000)
    assert hindsight.most_running == CONCURRENT_BANKS
