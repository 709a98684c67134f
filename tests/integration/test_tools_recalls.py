"""The recalls topic on a broker: what the worker writes is what the tools read."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from consumer.kafka.options import groupless_consumer, producer
from consumer.kafka.producer import Publisher
from consumer.recalls import RecallCache, RecallPublisher, RecallReader
from consumer.settings.model import Settings
from schemas.recalls import RecallRecord, RecallStatus
from tests.support.topics import Topics

COMPACTED = {"cleanup.policy": "compact,delete", "segment.ms": "3600000"}


def settings(topics: Topics) -> Settings:
    return Settings(
        hindsight_api_url="http://localhost:8888",
        kafka_bootstrap_servers=topics.broker.bootstrap_servers,
        kafka_enable_idempotence=topics.broker.idempotence,
        topic_recalls=topics.name("recalls"),
    )


def record(run: str, *memories: str) -> RecallRecord:
    return RecallRecord(
        run_id=run,
        company_id="c0000000-0000-4000-8000-000000000001",
        agent_id="a0000000-0000-4000-8000-000000000001",
        issue_id="d0000000-0000-4000-8000-000000000001",
        bank_id="bank",
        user_id=None,
        query="q",
        status=RecallStatus.RECALLED,
        memories=list(memories),
        recalled_at="2026-11-30T10:20:00Z",
    )


@asynccontextmanager
async def writing(ours: Settings) -> AsyncIterator[RecallPublisher]:
    publisher = Publisher(partial(producer, ours))
    try:
        yield RecallPublisher(publisher, ours.topic_recalls)
    finally:
        await publisher.close()


@asynccontextmanager
async def reading(ours: Settings) -> AsyncIterator[RecallReader]:
    now = 1_796_034_000.0
    recalls = RecallCache(runs=1000, size=10**7, max_age=3600, now=lambda: now)
    recall_reader = RecallReader(
        partial(groupless_consumer, ours, ours.topic_recalls), recalls, lambda *_, **__: None, pause=0.2
    )
    task = asyncio.create_task(recall_reader.run())
    try:
        yield recall_reader
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(recall_reader: RecallReader, run: str, memories: list[str] | None) -> None:
    def there() -> bool:
        record = recall_reader.get(run)
        return (None if record is None else record.memories) == memories

    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline, f"{run} did not become {memories}"
        await asyncio.sleep(0.02)


@pytest.fixture
async def ours(topics: Topics) -> Settings:
    await topics.create("recalls", partitions=3, config=COMPACTED)
    return settings(topics)


async def test_the_reader_reads_the_whole_topic_and_then_follows_it(ours: Settings) -> None:
    runs = [str(uuid.uuid4()) for _ in range(40)]
    async with writing(ours) as recalls:
        for run in runs:
            await recalls.publish(record(run, "old"))
            await recalls.publish(record(run, "new \U0001f600"))
        for run in runs[:10]:
            await recalls.publish_tombstone(run)
        async with reading(ours) as recall_reader, asyncio.timeout(60):
            await recall_reader.caught_up.wait()
            records = [recall_reader.get(run) for run in runs]
            assert [record is None for record in records] == [True] * 10 + [False] * 30
            assert {text for record in records if record for text in record.memories} == {"new \U0001f600"}
            await recalls.publish(record(runs[0], "back"))
            await until(recall_reader, runs[0], ["back"])
            await recalls.publish_tombstone(runs[0])
            await until(recall_reader, runs[0], None)


async def test_two_readers_both_read_every_record(ours: Settings) -> None:
    run = str(uuid.uuid4())
    async with writing(ours) as recalls, reading(ours) as one, reading(ours) as other:
        await recalls.publish(record(run, "both"))
        await until(one, run, ["both"])
        await until(other, run, ["both"])


async def test_a_reader_of_an_empty_topic_is_caught_up(ours: Settings) -> None:
    async with reading(ours) as recall_reader, asyncio.timeout(60):
        await recall_reader.caught_up.wait()


@pytest.mark.real_kafka
async def test_a_reader_reads_a_topic_that_is_created_later(topics: Topics) -> None:
    ours = settings(topics)
    run = str(uuid.uuid4())
    async with reading(ours) as recall_reader:
        await topics.create("recalls", partitions=3, config=COMPACTED)
        async with writing(ours) as recalls:
            await recalls.publish(record(run, "here"))
            await until(recall_reader, run, ["here"])
