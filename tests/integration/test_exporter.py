"""The exporter reads groups and topics of a real broker without joining a group or committing."""

import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from consumer.errors import UpstreamDown
from consumer.exporter.kafka_source import KafkaReader
from consumer.exporter.snapshot import GroupSnapshot, GroupState, KafkaSnapshot
from consumer.settings.model import Settings
from tests.support.topics import Topics

pytestmark = pytest.mark.real_kafka


class MonitoredTopic:
    """The comments topic and group of one test."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.servers = topics.broker.bootstrap_servers
        self.comments = topics.name("comments")
        self.group = topics.name("retain")
        self.reader = KafkaReader(
            Settings(
                hindsight_api_url="http://localhost:1",
                kafka_bootstrap_servers=self.servers,
                topic_agent_runs=topics.name("runs"),
                topic_issue_comments=self.comments,
                topic_dead_letters=topics.name("dead"),
                group_recall=topics.name("recall"),
                group_retain=self.group,
            )
        )

    async def produce(self, *timestamps: float, partition: int = 0, topic: str | None = None) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            for timestamp in timestamps:
                await producer.send_and_wait(
                    topic or self.comments, b"x", partition=partition, timestamp_ms=int(timestamp * 1000)
                )

    async def commit(self, offset: int, partition: int = 0) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=self.group, enable_auto_commit=False)
        await consumer.start()
        try:
            tp = TopicPartition(self.comments, partition)
            consumer.assign([tp])
            await consumer.commit({tp: OffsetAndMetadata(offset, "")})
        finally:
            await consumer.stop()

    async def admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        return admin

    async def read(self) -> KafkaSnapshot:
        return await self.reader.read()

    async def retain(self) -> GroupSnapshot:
        return (await self.read()).groups[1]


@pytest.fixture
async def topic(topics: Topics) -> AsyncIterator[MonitoredTopic]:
    monitored = MonitoredTopic(topics)
    await topics.create("runs")
    await topics.create("comments", partitions=2)
    await topics.create("dead", partitions=2)
    yield monitored
    await monitored.reader.close()


async def test_a_group_without_commits_lags_by_the_whole_topic(topic: MonitoredTopic) -> None:
    first = time.time() - 500
    await topic.produce(first, first + 100)
    snapshot = await topic.read()
    recall, retain = snapshot.groups
    assert (retain.members, retain.state) == (0, GroupState.DEAD)
    assert [(lag.committed, lag.end, lag.records) for lag in retain.lags] == [(None, 2, 2), (None, 0, 0)]
    assert [lag.seconds for lag in retain.lags] == [pytest.approx(500, abs=30), 0]
    assert retain.without_commit(topic.comments) == 2
    assert [(lag.records, lag.seconds) for lag in recall.lags] == [(0, 0)]
    assert snapshot.dead_letters == {topic.topics.name("dead"): 0}


async def test_lag_counts_from_the_commit_and_its_age_is_that_of_the_first_unread_record(topic: MonitoredTopic) -> None:
    now = time.time()
    await topic.produce(now - 900, now - 300, now)
    await topic.commit(1)
    (lag, _) = (await topic.retain()).lags
    assert (lag.committed, lag.records) == (1, 2)
    assert lag.seconds == pytest.approx(300, abs=30)
    await topic.commit(3)
    (lag, _) = (await topic.retain()).lags
    assert (lag.committed, lag.records, lag.seconds) == (3, 0, 0)


async def test_reading_joins_no_group_and_commits_nothing(topic: MonitoredTopic) -> None:
    await topic.produce(time.time())
    for _ in range(2):
        retain = await topic.retain()
        assert (retain.members, retain.lags[0].committed) == (0, None)
    admin = await topic.admin()
    try:
        assert topic.group not in [group for group, *_ in await admin.list_consumer_groups()]
    finally:
        await admin.close()


async def test_group_members_and_state_are_read(topic: MonitoredTopic) -> None:
    consumer = AIOKafkaConsumer(topic.comments, bootstrap_servers=topic.servers, group_id=topic.group)
    await consumer.start()
    try:
        retain = await topic.retain()
        assert (retain.members, retain.state) == (1, GroupState.STABLE)
    finally:
        await consumer.stop()
    retain = await topic.retain()
    assert (retain.members, retain.state) == (0, GroupState.EMPTY)


async def test_a_commit_below_the_log_start_counts_from_the_log_start(topic: MonitoredTopic) -> None:
    now = time.time()
    await topic.produce(now - 900, now - 800, now - 200, now)
    await topic.commit(1)
    admin = await topic.admin()
    try:
        await admin.delete_records({TopicPartition(topic.comments, 0): RecordsToDelete(before_offset=2)})
    finally:
        await admin.close()
    (lag, _) = (await topic.retain()).lags
    assert (lag.committed, lag.records) == (1, 2)
    assert lag.seconds == pytest.approx(200, abs=30)


async def test_a_transaction_marker_at_the_end_counts_as_lag_without_an_age(topic: MonitoredTopic) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=topic.servers, transactional_id=topic.topics.name("writer"))
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send(topic.comments, b"x", partition=0, timestamp_ms=int((time.time() - 70) * 1000))
        await topic.commit(1)
        (lag, _) = (await topic.retain()).lags
        assert (lag.committed, lag.end, lag.records, lag.seconds) == (1, 2, 1, 0)
    finally:
        await producer.stop()


async def test_records_of_an_open_transaction_count_as_lag(topic: MonitoredTopic) -> None:
    """A lane cannot read beyond it."""
    producer = AIOKafkaProducer(bootstrap_servers=topic.servers, transactional_id=topic.topics.name("writer"))
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(topic.comments, b"x", partition=0, timestamp_ms=int((time.time() - 70) * 1000))
        (lag, _) = (await topic.retain()).lags
        assert lag.records == 1
        assert lag.seconds == pytest.approx(70, abs=30)
        await producer.abort_transaction()
    finally:
        await producer.stop()


async def test_the_age_of_large_records_is_read_in_each_partition(topic: MonitoredTopic) -> None:
    now = time.time()
    async with AIOKafkaProducer(bootstrap_servers=topic.servers) as producer:
        for partition in (0, 1):
            value, at = b"x" * 900_000, int((now - 100) * 1000)
            await producer.send_and_wait(topic.comments, value, partition=partition, timestamp_ms=at)
    assert [lag.seconds for lag in (await topic.retain()).lags] == [pytest.approx(100, abs=30)] * 2


async def test_a_topic_that_is_deleted_between_reads_has_no_lag(topic: MonitoredTopic) -> None:
    await topic.produce(time.time())
    await topic.commit(1)
    assert len((await topic.retain()).lags) == 2
    admin = await topic.admin()
    try:
        await admin.delete_topics([topic.comments])
    finally:
        await admin.close()
    retain = await topic.retain()
    assert (retain.topics, retain.lags) == ((topic.comments,), ())


async def test_dead_letters_are_counted_over_partitions(topic: MonitoredTopic) -> None:
    letters = topic.topics.name("dead")
    await topic.produce(1, 2, topic=letters)
    await topic.produce(3, topic=letters, partition=1)
    assert (await topic.read()).dead_letters == {letters: 3}


async def test_an_unreachable_broker_raises_with_its_address(topics: Topics) -> None:
    topic = MonitoredTopic(topics)
    settings = topic.reader._settings
    reader = KafkaReader(settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"}))
    with pytest.raises(UpstreamDown, match=r"Kafka at 127\.0\.0\.1:1"):
        await reader.read()
