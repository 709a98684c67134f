"""What aiokafka 0.14 does with records: first the trap itself, then the lane in it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.errors import (
    CorruptRecordException,
    MessageSizeTooLargeError,
)

from consumer.errors import DeadLetterReason, Permanent
from consumer.kafka.producer import Publisher, RecordTooLarge
from consumer.stream.executor import Job
from consumer.stream.hooks import PollFailed, RecordsExpired
from consumer.stream.records import Headers, Record
from consumer.stream.unreadable import skip_unreadable_records
from tests.integration.lane_harness import (
    caught_up,
    committed,
    end,
    lane,
    member,
    poll,
    prefetched,
    produce,
    producer,
    started,
    until,
)
from tests.support.topics import Topics
from tests.support.unreadable import send_unreadable

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(60), pytest.mark.usefixtures("short_waits")]


# Polls


async def test_pause_drops_what_was_prefetched(topics: Topics) -> None:
    topic = await topics.create("t")
    await produce(topics, topic, [b"a", b"b"])
    async with started(member(topics, topic)) as client:
        tp = TopicPartition(topic, 0)
        await until(lambda: tp in prefetched(client))
        client.pause(tp)
        assert await client.getmany(timeout_ms=0) == {}
        assert tp not in prefetched(client)
        client.resume(tp)
        assert await poll(client, 2) == [b"a", b"b"]


class Corrupt:
    """Batches that cannot be read: of the second partition that one poll comes to, or always of one partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, times: int = 1, partition: int | None = None) -> None:
        self.left = times
        self.lost: list[TopicPartition] = []
        before: list[TopicPartition] = []
        unpack: Any = PartitionRecords._unpack_records
        fetched: Any = Fetcher.fetched_records

        def unpack_records(records: Any) -> Iterator[Any]:
            tp = records._tp
            if self.left and (before if partition is None else tp.partition == partition):
                self.left -= 1
                self.lost += before
                raise CorruptRecordException("Invalid CRC")
            before.append(tp)
            yield from unpack(records)

        async def fetched_records(*args: Any, **options: Any) -> Any:
            before.clear()
            return await fetched(*args, **options)

        monkeypatch.setattr(PartitionRecords, "_unpack_records", unpack_records)
        monkeypatch.setattr(Fetcher, "fetched_records", fetched_records)


async def test_a_poll_that_raises_loses_what_it_had_taken_of_others(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await topics.create("t", partitions=2)
    for number in (0, 1):
        await produce(topics, topic, [b"record"], partition=number)
    corrupt = Corrupt(monkeypatch, times=0)
    async with started(member(topics, topic)) as client:
        await until(lambda: len(prefetched(client)) == 2)
        corrupt.left = 1
        with pytest.raises(CorruptRecordException):
            await client.getmany(timeout_ms=100)
        [lost] = corrupt.lost
        assert await client.position(lost) == 1
        [(other, _)] = (await client.getmany(timeout_ms=5_000)).items()
        assert other != lost


async def test_the_lane_reads_it_again(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await topics.create("t", partitions=2)
    expected = [b"%d" % n for n in range(20)]
    for number in (0, 1):
        await produce(topics, topic, expected[number::2], partition=number)
    corrupt = Corrupt(monkeypatch, times=3)
    async with lane(topics, topic) as harness:
        await until(lambda: len(harness.handled) == 20)
        await produce(topics, topic, [b"later"], partition=0)
        await produce(topics, topic, [b"later too"], partition=1)
        await caught_up(topics, TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert sorted(value or b"" for value in harness.handled) == sorted([*expected, b"later", b"later too"])
        assert corrupt.lost
        assert len(harness.events(PollFailed)) == 3 - corrupt.left


async def test_a_partition_that_cannot_be_read_does_not_keep_the_lane_from_the_others(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await topics.create("t", partitions=2)
    Corrupt(monkeypatch, times=1_000_000, partition=1)
    await produce(topics, topic, [b"corrupt"], partition=1)
    async with lane(topics, topic) as harness:
        await until(lambda: harness.events(PollFailed))
        for wave in (b"0", b"1", b"2"):
            await produce(topics, topic, [wave])
            await until(partial(harness.handled.__contains__, wave))
        await caught_up(topics, TopicPartition(topic, 0))
        assert harness.handled == [b"0", b"1", b"2"]
        assert await committed(topics, TopicPartition(topic, 1)) is None


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_a_transaction_leaves_a_marker_that_only_the_position_covers(topics: Topics, outcome: str) -> None:
    topic = await topics.create("t")
    tp = TopicPartition(topic, 0)
    async with producer(topics, transactional_id=topics.name("transaction")) as client:
        await client.begin_transaction()
        await client.send_and_wait(topic, b"a", partition=0)
        await (client.commit_transaction() if outcome == "commit" else client.abort_transaction())
    async with started(member(topics, topic, group="bare")) as client:
        while tp not in client.assignment() or await client.position(tp) < 2:
            polled = await client.getmany(timeout_ms=100)
            assert all(record.offset == 0 for records in polled.values() for record in records)
        assert await end(topics, tp) == 2
    async with lane(topics, topic) as harness:
        await caught_up(topics, tp)
        assert harness.handled == ([b"a"] if outcome == "commit" else [])


async def test_a_record_over_the_fetch_limits_is_delivered(topics: Topics) -> None:
    topic = await topics.create("t", config={"max.message.bytes": "8000000"})
    large = b"x" * 5_000_000
    await produce(topics, topic, [large, b"next"], max_request_size=8_000_000)
    async with lane(topics, topic, max_partition_fetch_bytes=65_536, fetch_max_bytes=65_536) as harness:
        await caught_up(topics, TopicPartition(topic, 0))
        assert harness.handled == [large, b"next"]


async def test_what_retention_removed_is_told(topics: Topics) -> None:
    topic = await topics.create("t")
    tp = TopicPartition(topic, 0)
    await produce(topics, topic, [b"%d" % n for n in range(10)])
    async with started(member(topics, topic)) as client:
        await poll(client, 10)
        await client.commit({tp: 3})
    admin = AIOKafkaAdminClient(bootstrap_servers=topics.broker.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records({tp: RecordsToDelete(before_offset=7)})
    finally:
        await admin.close()
    async with lane(topics, topic) as harness:
        await caught_up(topics, tp)
        assert harness.events(RecordsExpired) == [RecordsExpired("trap", topic, 0, 4)]
        assert harness.handled == [b"7", b"8", b"9"]


# Dead letters


def dead_letter(record: Record) -> Job:
    raise Permanent("a test", reason=DeadLetterReason.UNDECODABLE)


async def fitting(client: AIOKafkaProducer, topic: str, limit: int) -> bytes:
    """The largest value that a topic of this limit takes, written to it."""
    for size in range(limit, 0, -1):
        try:
            await client.send_and_wait(topic, b"x" * size, key=b"k", partition=0)
        except MessageSizeTooLargeError:
            continue
        return b"x" * size
    raise AssertionError("it takes nothing")


@pytest.mark.parametrize(("room", "whole"), [(0, False), (65_536, True)])
async def test_a_record_at_its_topics_limit_fits_with_headers_only_where_there_is_room(
    topics: Topics, room: int, whole: bool
) -> None:
    limit = 10_000
    topic = await topics.create("t", config={"max.message.bytes": f"{limit}"})
    dead = await topics.create("dead", config={"max.message.bytes": f"{limit + room}"})
    async with producer(topics) as client:
        value = await fitting(client, topic, limit)
    made = partial(AIOKafkaProducer, bootstrap_servers=topics.broker.bootstrap_servers, acks="all")
    publisher = Publisher(made)

    async def write(_: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        await publisher.publish(dead, key, value, headers)

    try:
        async with lane(topics, topic, resolve=dead_letter, write=write, too_large=RecordTooLarge):
            await caught_up(topics, TopicPartition(topic, 0))
    finally:
        await publisher.close()
    async with started(member(topics, dead, group="reader")) as reader:
        [(_, [record])] = (await reader.getmany(timeout_ms=10_000)).items()
    headers = dict(record.headers)
    assert (record.value == value) is whole
    assert record.value
    assert value.startswith(record.value)
    assert headers.get("dead-letter-truncated-from") == (None if whole else b"%d" % len(value))
    assert headers["dead-letter-offset"] == b"0"


async def test_a_record_with_neither_key_nor_value_and_a_header_without_one_becomes_a_dead_letter(
    topics: Topics,
) -> None:
    """Kafka holds such records; aiokafka's `send` asserts that one of the two is there."""
    topic, dead = await topics.create("t"), await topics.create("dead")
    async with producer(topics) as client:
        with pytest.raises(AssertionError):
            await client.send_and_wait(topic)
        batch = client.create_batch()
        batch.append(key=None, value=None, timestamp=None, headers=[("empty", None)])
        batch.close()
        await (await client.send_batch(batch, topic, partition=0))
        publisher = Publisher(partial(AIOKafkaProducer, bootstrap_servers=topics.broker.bootstrap_servers))

        async def write(_: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
            await publisher.publish(dead, key, value, headers)

        async with lane(topics, topic, resolve=dead_letter, write=write, too_large=RecordTooLarge):
            await caught_up(topics, TopicPartition(topic, 0))
        await publisher.close()
    async with started(member(topics, dead, group="reader")) as reader:
        [(_, [record])] = (await reader.getmany(timeout_ms=10_000)).items()
    assert (record.key, record.value) == (None, b"")
    assert record.headers[0][0] == "empty"
    assert record.headers[0][1] is None


async def test_a_header_name_that_is_not_utf8_becomes_a_dead_letter_and_is_stepped_over(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka takes such a record; `getmany` raises on it for ever."""
    monkeypatch.setattr(fetcher, "PartitionRecords", PartitionRecords)
    monkeypatch.setattr(fetcher, "MemoryRecords", vars(fetcher)["MemoryRecords"])
    topic = await topics.create("t")
    async with producer(topics) as client:
        assert await send_unreadable(client, topic) == 1
    async with started(member(topics, topic, group="bare")) as bare:
        with pytest.raises(ValueError, match="utf-8"):
            await poll(bare, 3)
    skip_unreadable_records()
    written: list[tuple[bytes | None, dict[str, bytes | None]]] = []

    async def write(_: str, _key: bytes | None, value: bytes | None, headers: Headers) -> None:
        written.append((value, dict(headers)))

    async with lane(topics, topic, write=write) as harness:
        await caught_up(topics, TopicPartition(topic, 0))
        assert len(harness.handled) == 2
    [(bytes_left, headers)] = written
    assert bytes_left == b""
    assert (headers["dead-letter-offset"], headers["dead-letter-reason"]) == (b"1", b"unreadable")
