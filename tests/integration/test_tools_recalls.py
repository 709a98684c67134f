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
from consumer.recalls import RecallMap, RecallReader, TopicRecalls
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
async def writing(ours: Settings) -> AsyncIterator[TopicRecalls]:
    publisher = Publisher(partial(producer, ours))
    try:
        yield TopicRecalls(publisher, ours.topic_recalls)
    finally:
        await publisher.close()


@asynccontextmanager
async def reading(ours: Settings) -> AsyncIterator[RecallReader]:
    now = 1_796_034_000.0
    recalls = RecallMap(runs=1000, size=10**7, max_age=3600, now=lambda: now)
    known = RecallReader(
        partial(groupless_consumer, ours, ours.topic_recalls), recalls, lambda *_, **__: None, pause=0.2
    )
    task = asyncio.create_task(known.run())
    try:
        yield known
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(known: RecallReader, run: str, memories: list[str] | None) -> None:
    def there() -> bool:
        found = known.get(run)
        return (None if found is None else found.memories) == memories

    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline, f"{run} did not become {memories}"
        await asyncio.sleep(0.02)


@pytest.fixture
async def ours(topics: Topics) -> Settings:
    await topics.create("recalls", partitions=3, config=COMPACTED)
    return settings(topics)


async def test_the_whole_topic_is_read_and_then_followed(ours: Settings) -> None:
    runs = [str(uuid.uuid4()) for _ in range(40)]
    async with writing(ours) as recalls:
        for run in runs:
            await recalls.publish(record(run, "old"))
            await recalls.publish(record(run, "new \U0001f600"))
        for run in runs[:10]:
            await recalls.end(run)
        async with reading(ours) as known, asyncio.timeout(60):
            await known.caught_up.wait()
            found = [known.get(run) for run in runs]
            assert [each is None for each in found] == [True] * 10 + [False] * 30
            assert {text for each in found if each for text in each.memories} == {"new \U0001f600"}
            await recalls.publish(record(runs[0], "back"))
            await until(known, runs[0], ["back"])
            await recalls.end(runs[0])
            await until(known, runs[0], None)


async def test_two_readers_read_everything_each(ours: Settings) -> None:
    run = str(uuid.uuid4())
    async with writing(ours) as recalls, reading(ours) as one, reading(ours) as other:
        await recalls.publish(record(run, "both"))
        await until(one, run, ["both"])
        await until(other, run, ["both"])


async def test_an_empty_topic_is_caught_up(ours: Settings) -> None:
    async with reading(ours) as known, asyncio.timeout(60):
        await known.caught_up.wait()


@pytest.mark.real_kafka
async def test_a_topic_that_is_made_later(topics: Topics) -> None:
    ours = settings(topics)
    run = str(uuid.uuid4())
    async with reading(ours) as known:
        await topics.create("recalls", partitions=3, config=COMPACTED)
        async with writing(ours) as recalls:
            await recalls.publish(record(run, "here"))
            await until(known, run, ["here"])
