"""`KafkaSource` on a scripted consumer; what it makes of the real one is tested on real Kafka (aiokafka's traps)."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    NotCoordinatorForGroupError,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from consumer.stream.records import Partition, Record
from consumer.stream.source import (
    KafkaSource,
    SourceClosed,
    ask_each,
    check_offset_fetches,
    committed_at,
    plausible_timestamp,
)
from consumer.stream.unreadable import UnreadableRecord

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """Answers as scripted, and notes what it was calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.refuses: Exception | None = None
        self.polled: dict[TopicPartition, list[Any]] = {}
        self.committed_offsets: dict[TopicPartition, int | None] = {}
        self._client = SimpleNamespace(send=None)
        self._coordinator: SimpleNamespace | None = SimpleNamespace(generation=3)

    def subscribe(self, topics: list[str], listener: Any) -> None:
        self.topics, self.listener = topics, listener

    async def start(self) -> None:
        if self.refuses is not None:
            raise self.refuses

    async def stop(self) -> None:
        self.calls.append("stop")

    async def getmany(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        if self.refuses is not None:
            raise self.refuses
        self.calls.append((timeout_ms, max_records))
        return self.polled

    async def position(self, _tp: TopicPartition) -> int:
        return 9

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        self.calls.append({tp: offset for tp, (offset, metadata) in offsets.items() if committed_at(metadata)})

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 5)

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 12)

    async def committed(self, tp: TopicPartition) -> int | None:
        return self.committed_offsets.get(tp)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.calls.append(("seek", tp, offset))

    def assignment(self) -> set[TopicPartition]:
        return {ZERO, ONE}

    def pause(self, tp: TopicPartition) -> None:
        self.calls.append(("pause", tp))

    def resume(self, tp: TopicPartition) -> None:
        self.calls.append(("resume", tp))


class Listening:
    """An `Assignments` that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def assigned(self) -> None:
        self.heard.append("assigned")

    async def revoked(self) -> None:
        self.heard.append("revoked")


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def source(consumer: Consumer) -> KafkaSource:
    return KafkaSource(lambda: consumer, ["t"])  # type: ignore[arg-type, return-value]


async def test_the_subscription_forwards_assignments_to_the_listener(source: KafkaSource, consumer: Consumer) -> None:
    listening = Listening()
    await source.start(listening)
    await consumer.listener.on_partitions_revoked(set())
    await consumer.listener.on_partitions_assigned({ZERO})
    assert (consumer.topics, listening.heard) == (["t"], ["revoked", "assigned"])
    assert consumer._client.send.__name__ == "checked_send"


async def test_a_failed_start_stops_the_consumer(source: KafkaSource, consumer: Consumer) -> None:
    consumer.refuses = KafkaConnectionError()
    with pytest.raises(KafkaConnectionError):
        await source.start(Listening())
    assert consumer.calls == ["stop"]


async def test_stop_before_start_does_nothing(source: KafkaSource, consumer: Consumer) -> None:
    await source.stop()
    assert consumer.calls == []
    await source.start(Listening())
    await source.stop()
    assert consumer.calls == ["stop"]


async def test_a_poll_returns_records_and_the_position_after_them(source: KafkaSource, consumer: Consumer) -> None:
    message = SimpleNamespace(
        topic="t",
        partition=0,
        offset=7,
        timestamp=1_796_034_000_000,
        key=b"k",
        value=b"v",
        headers=(("replay", b"backfill"),),
    )
    consumer.polled = {ZERO: [message]}
    await source.start(Listening())
    (batch,) = await source.poll(0.2, 500)
    assert consumer.calls == [(200, 500)]
    assert (batch.partition, batch.position) == (Partition("t", 0), 9)
    assert batch.records[0].header("replay") == "backfill"
    assert batch.records[0].unreadable == ""


async def test_a_record_that_the_client_cannot_read_says_why(source: KafkaSource, consumer: Consumer) -> None:
    at = 1_700_000_000_000
    message = UnreadableRecord("t", 0, 7, at, 0, None, None, None, -1, -1, (), "CorruptRecordException: Invalid CRC")
    consumer.polled = {ZERO: [message]}
    await source.start(Listening())
    (batch,) = await source.poll(0.2, 500)
    assert batch.records == [Record("t", 0, 7, at, None, None, (), "CorruptRecordException: Invalid CRC")]


async def test_a_poll_after_stop_raises_source_closed(source: KafkaSource, consumer: Consumer) -> None:
    await source.start(Listening())
    consumer.refuses = ConsumerStoppedError()
    with pytest.raises(SourceClosed):
        await source.poll(0.2, 500)


async def test_commits_positions_and_starts(source: KafkaSource, consumer: Consumer) -> None:
    consumer.committed_offsets = {ZERO: 8}
    await source.start(Listening())
    await source.commit({Partition("t", 0): 8})
    assert await source.position(Partition("t", 0)) == 9
    assert await source.start_of(Partition("t", 0)) == (8, 5)
    assert await source.start_of(Partition("t", 1)) == (None, 5)
    assert await source.end_of(Partition("t", 1)) == 12
    source.seek(Partition("t", 1), 5)
    assert consumer.calls == [{ZERO: 8}, ("seek", ONE, 5)]


async def test_pauses_are_sent_once_and_forgotten_with_the_assignment(source: KafkaSource, consumer: Consumer) -> None:
    await source.start(Listening())
    both = source.assignment()
    zero, one = Partition("t", 0), Partition("t", 1)
    for wanted in ({zero}, {zero}, {one}):
        source.set_paused(set(wanted), both)
    assert consumer.calls == [("pause", ZERO), ("pause", ONE), ("resume", ZERO)]
    source.forget_pauses()
    source.set_paused(set(), both)
    assert len(consumer.calls) == 3


@pytest.mark.parametrize(
    ("coordinator", "evicted"),
    [(SimpleNamespace(generation=-1), True), (SimpleNamespace(generation=3), False), (None, False)],
)
async def test_evicted_reads_the_coordinators_generation(
    source: KafkaSource, consumer: Consumer, coordinator: SimpleNamespace | None, evicted: bool
) -> None:
    await source.start(Listening())
    consumer._coordinator = coordinator
    assert source.evicted() is evicted


@pytest.mark.parametrize(
    ("metadata", "seconds"),
    [("2026-01-01T00:00:00.250+00:00", 1_767_225_600.25), ("", None), (None, None), ("another's metadata", None)],
)
def test_the_metadata_of_a_commit_holds_its_time(metadata: str | None, seconds: float | None) -> None:
    assert committed_at(metadata) == seconds


async def test_partitions_are_asked_side_by_side_and_those_that_fail_or_hang_are_left_out() -> None:
    both = asyncio.Barrier(2)

    async def ask(partition: Partition) -> int:
        match partition.number:
            case 0 | 1:
                async with both:
                    return partition.number
            case 2:
                raise KafkaConnectionError
            case _:
                await asyncio.Event().wait()
                raise AssertionError

    partitions = [Partition("t", number) for number in range(4)]
    assert await ask_each(ask, partitions, 0.05) == {partitions[0]: 0, partitions[1]: 1}
    assert await ask_each(ask, [], 0.05) == {}


@pytest.mark.parametrize(
    ("code", "error"),
    [(0, None), (14, GroupLoadInProgressError), (16, NotCoordinatorForGroupError)],
)
async def test_an_offset_fetch_that_failed_as_a_whole_raises(code: int, error: type[Exception] | None) -> None:
    """aiokafka takes such an answer for a group that has never committed, and reads its topics from the start."""
    response = SimpleNamespace(topics=[], error_code=code)

    async def send(_node_id: int, _request: object, **_options: Any) -> object:
        return response

    client: Any = SimpleNamespace(send=send)
    check_offset_fetches(client)
    assert await client.send(0, "another request", group=1) is response
    request = OffsetFetchRequest("group", [("t", [0])])
    if error is None:
        assert await client.send(0, request, group=1) is response
    else:
        with pytest.raises(error):
            await client.send(0, request, group=1)


async def test_a_group_whose_coordinator_is_loading_keeps_its_committed_offset() -> None:
    """With aiokafka's own coordinator: it asks again until the coordinator answers."""
    answers: list[Any] = [
        SimpleNamespace(topics=[], error_code=14),
        SimpleNamespace(topics=[], error_code=16),
        SimpleNamespace(topics=[("t", [(0, 42, None, 0)])], error_code=0),
    ]

    async def send(_node_id: int, _request: object, **_options: Any) -> object:
        return answers.pop(0)

    client: Any = SimpleNamespace(send=send)
    check_offset_fetches(client)
    coordinator: Any = object.__new__(GroupCoordinator)
    coordinator._client, coordinator.group_id, coordinator._retry_backoff_ms = client, "group", 1
    coordinator.coordinator_id = 0
    coordinator.ensure_coordinator_known = AsyncMock()
    coordinator.coordinator_dead = lambda: None
    committed = await coordinator.fetch_committed_offsets([ZERO])
    assert committed[ZERO].offset == 42


@pytest.mark.parametrize(
    ("timestamp", "plausible"),
    [
        pytest.param(1_700_000_000_000, 1_700_000_000_000, id="true"),
        pytest.param(0, 1_796_034_000_000, id="the producer writes no time"),
        pytest.param(-1, 1_796_034_000_000, id="the client knows no time"),
        pytest.param(1_796_034_000, 1_796_034_000_000, id="seconds for milliseconds"),
        pytest.param(1_796_034_090_000, 1_796_034_000_000, id="the producer's clock is ahead"),
    ],
)
def test_a_timestamp_that_cannot_be_true_is_replaced_by_the_time_of_the_poll(timestamp: int, plausible: int) -> None:
    assert plausible_timestamp(timestamp, 1_796_034_000_000) == plausible


async def test_a_poll_replaces_implausible_timestamps(source: KafkaSource, consumer: Consumer) -> None:
    consumer.polled = {
        ZERO: [SimpleNamespace(topic="t", partition=0, offset=7, timestamp=-1, key=b"k", value=b"v", headers=())]
    }
    await source.start(Listening())
    (batch,) = await source.poll(0.2, 500)
    assert abs(batch.records[0].timestamp / 1000 - time.time()) < 60
