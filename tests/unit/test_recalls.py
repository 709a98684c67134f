"""The recall cache: the last record of a run counts, and the cache stays within its limits."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from consumer.recalls import RecallCache, RecallReader
from schemas.codec import encode
from schemas.recalls import RecallRecord, RecallStatus

NOW = 1_796_034_000.0
RUN = "b0000000-0000-4000-8000-000000000001"


def make_cache(runs: int = 100, size: int = 1_000_000, max_age: float = 3600.0) -> RecallCache:
    return RecallCache(runs=runs, size=size, max_age=max_age, now=lambda: NOW)


def record(run: str = RUN, *memories: str, at: str = "2026-11-30T10:19:00Z", **more: Any) -> bytes:
    return encode(
        RecallRecord(
            run_id=run,
            company_id="c0000000-0000-4000-8000-000000000001",
            agent_id="a0000000-0000-4000-8000-000000000001",
            issue_id="d0000000-0000-4000-8000-000000000001",
            bank_id="bank",
            user_id=None,
            query="q",
            status=RecallStatus.RECALLED,
            memories=list(memories),
            recalled_at=at,
            **more,
        )
    )


def memories(cache: RecallCache, run: str = RUN) -> list[str] | None:
    record = cache.get(run)
    return None if record is None else record.memories


def test_the_last_record_of_a_run_counts() -> None:
    cache = make_cache()
    assert memories(cache) is None
    for text in ("one", "two"):
        cache.apply(RUN.encode(), record(RUN, text))
    assert memories(cache) == ["two"]
    cache.apply(RUN.encode(), None)
    assert memories(cache) is None
    assert len(cache) == 0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        record("b0000000-0000-4000-8000-000000000002", "of another run"),
        record(RUN, "when?", at="yesterday"),
        b'{"runId": "\xff"}',
    ],
)
def test_an_unreadable_record_removes_the_run(value: bytes) -> None:
    cache = make_cache()
    cache.apply(RUN.encode(), record(RUN, "old"))
    cache.apply(RUN.encode(), value)
    assert len(cache) == 0


def test_a_record_without_a_readable_key_is_ignored() -> None:
    cache = make_cache()
    cache.apply(None, record(RUN, "x"))
    cache.apply(b"\xff", record(RUN, "x"))
    assert len(cache) == 0


def test_unknown_fields_of_a_newer_version_are_accepted() -> None:
    cache = make_cache()
    cache.apply(RUN.encode(), record(RUN, "x", tomorrow=[1]))
    assert memories(cache) == ["x"]


def test_a_record_expires_at_its_maximum_age() -> None:
    now = NOW
    cache = RecallCache(runs=10, size=10**6, max_age=3600, now=lambda: now)
    cache.apply(RUN.encode(), record(RUN, "x", at="2026-11-30T09:20:01"))  # no offset: UTC
    assert memories(cache) == ["x"]
    now += 2
    assert memories(cache) is None
    cache.evict()
    assert len(cache) == 0
    cache.apply(RUN.encode(), record(RUN, "x", at="2026-11-28T00:00:00Z"))
    assert len(cache) == 0


def test_least_recently_used_runs_are_evicted_when_there_are_too_many() -> None:
    cache = make_cache(runs=3)
    runs = [str(uuid.uuid4()) for _ in range(5)]
    for run in runs:
        cache.apply(run.encode(), record(run, "x"))
    assert [run for run in runs if cache.get(run)] == runs[2:]
    cache.apply(runs[2].encode(), record(runs[2], "again"))  # now the last one received
    cache.apply(RUN.encode(), record(RUN, "x"))
    assert [run for run in runs if cache.get(run)] == [runs[2], runs[4]]


def test_the_size_of_all_records_is_limited() -> None:
    cache = make_cache(size=3000)
    runs = [str(uuid.UUID(int=number)) for number in range(10)]
    for run in runs:
        cache.apply(run.encode(), record(run, "x" * 900))
    assert len(cache) == 2
    cache.apply(runs[-1].encode(), record(runs[-1], "x" * 4000))  # larger than the limit for all
    assert len(cache) == 1
    assert cache.get(runs[-1]) is None
    cache.clear()
    assert len(cache) == 0
    cache.apply(RUN.encode(), record(RUN, "fits"))
    assert memories(cache) == ["fits"]


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 400))))
def test_the_cache_contains_the_last_records_within_its_limits(log: list[tuple[int, int | None]]) -> None:
    cache, runs = make_cache(runs=4, size=2000), [str(uuid.UUID(int=number)) for number in range(6)]
    last: dict[str, int | None] = {}
    for number, length in log:
        run = runs[number]
        cache.apply(run.encode(), None if length is None else record(run, "x" * length))
        last[run] = length
        cached = {run: memories(cache, run) for run in runs}
        assert all(texts is None or texts == ["x" * (last[run] or 0)] for run, texts in cached.items())
        assert sum(texts is not None for texts in cached.values()) == len(cache) <= 4
        assert cache._records.currsize <= 2000
    if last.get(runs[0]) is None:
        assert cache.get(runs[0]) is None


class Consumer:
    """A consumer of scripted batches."""

    def __init__(self, ends: list[int], batches: list[dict[int, list[bytes]]], start: Exception | None = None) -> None:
        self.tps = [TopicPartition("recalls", number) for number in range(len(ends))]
        self.ends = dict(zip(self.tps, ends, strict=True))
        self.positions = dict.fromkeys(self.tps, 0)
        self.batches = batches
        self.start_error = start
        self.read_all = asyncio.Event()
        self.stopped = False

    async def start(self) -> None:
        if self.start_error:
            raise self.start_error

    async def stop(self) -> None:
        self.stopped = True

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.tps)

    async def end_offsets(self, tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps}

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    async def getmany(self, *_: TopicPartition, **__: int) -> dict[TopicPartition, list[Any]]:
        if not self.batches:
            self.read_all.set()
            await asyncio.Event().wait()
        given = {}
        for number, runs in self.batches.pop(0).items():
            tp = self.tps[number]
            self.positions[tp] += len(runs)
            given[tp] = [type("Record", (), {"key": run, "value": record(run.decode(), "x")}) for run in runs]
        return given


RUNS = [str(uuid.UUID(int=number)).encode() for number in range(9)]


async def following(
    consumers: list[Consumer], check: Callable[[RecallReader, list[str]], Awaitable[None]]
) -> RecallReader:
    warnings: list[str] = []
    waiting = iter(consumers)
    reader = RecallReader(lambda: next(waiting), make_cache(), lambda event, **_: warnings.append(event), pause=0)  # type: ignore[arg-type, return-value]
    task = asyncio.create_task(reader.run())
    try:
        async with asyncio.timeout(10):
            await check(reader, warnings)
    finally:
        task.cancel()
        await asyncio.wait([task])
    return reader


async def test_get_returns_none_until_the_end_offsets_are_reached() -> None:
    consumer = Consumer([2, 1], [{0: RUNS[:1]}, {1: RUNS[1:2]}, {0: RUNS[2:3]}, {}])
    seen: list[bool] = []
    take = consumer.getmany

    async def watched(*partitions: TopicPartition, **limits: int) -> dict[TopicPartition, list[Any]]:
        seen.append(reader_of[0].caught_up.is_set())
        return await take(*partitions, **limits)

    consumer.getmany = watched  # type: ignore[method-assign]
    reader_of: list[RecallReader] = []

    async def check(reader: RecallReader, _: list[str]) -> None:
        reader_of.append(reader)
        assert reader.get(RUNS[0].decode()) is None
        await consumer.read_all.wait()
        assert reader.get(RUNS[0].decode()) is not None

    await following([consumer], check)
    assert seen == [False, False, False, True, True]
    assert consumer.stopped


async def test_an_empty_topic_is_caught_up_at_once() -> None:
    async def check(reader: RecallReader, _: list[str]) -> None:
        await reader.caught_up.wait()

    await following([Consumer([0, 0], [])], check)


async def test_a_topic_that_cannot_be_read_is_read_again() -> None:
    consumers = [Consumer([0], [], KafkaConnectionError("no broker")), Consumer([1], [{0: RUNS[:1]}, {}])]

    async def check(reader: RecallReader, warnings: list[str]) -> None:
        await consumers[1].read_all.wait()
        assert reader.get(RUNS[0].decode()) is not None
        assert warnings == ["cannot read the recalls topic: tools recall live"]

    await following(consumers, check)
    assert all(consumer.stopped for consumer in consumers)


async def test_the_cache_is_not_used_while_the_topic_is_read_again() -> None:
    first, second = Consumer([1], [{0: RUNS[:1]}, {}]), Consumer([1], [])
    broken = asyncio.Event()
    take = first.getmany

    async def breaks(*partitions: TopicPartition, **limits: int) -> dict[TopicPartition, list[Any]]:
        if not first.batches:
            broken.set()
            raise KafkaConnectionError("gone")
        return await take(*partitions, **limits)

    first.getmany = breaks  # type: ignore[method-assign]

    async def check(reader: RecallReader, _: list[str]) -> None:
        await broken.wait()
        await second.read_all.wait()
        assert not reader.caught_up.is_set()
        assert reader.get(RUNS[0].decode()) is None

    await following([first, second], check)


async def test_added_partitions_are_read_before_the_cache_is_used_again() -> None:
    consumer = Consumer([0, 1], [{}, {1: RUNS[:1]}, {}])
    both, now = consumer.tps, [1]
    consumer.assignment = lambda: frozenset(both[: now[0]])  # type: ignore[method-assign]
    seen: list[bool] = []
    take = consumer.getmany

    async def grows(*partitions: TopicPartition, **limits: int) -> dict[TopicPartition, list[Any]]:
        seen.append(reader_of[0].caught_up.is_set())
        now[0] = 2
        return await take(*partitions, **limits)

    consumer.getmany = grows  # type: ignore[method-assign]
    reader_of: list[RecallReader] = []

    async def check(reader: RecallReader, _: list[str]) -> None:
        reader_of.append(reader)
        await consumer.read_all.wait()
        assert reader.get(RUNS[0].decode()) is not None

    await following([consumer], check)
    assert seen == [True, False, True, True]
