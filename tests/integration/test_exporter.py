"""What the exporter sees of a real broker, as an onlooker: it joins no group and commits nothing."""

import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from consumer.errors import UpstreamDown
from consumer.exporter.kafka_source import KafkaWatch
from consumer.exporter.snapshot import GroupSeen, GroupState, KafkaSeen
from consumer.settings.model import Settings
from tests.support.topics import Topics

pytestmark = pytest.mark.real_kafka


class Place:
    """The comments topic and its group of one test, and what is done to them."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.servers = topics.broker.bootstrap_servers
        self.comments = topics.name("comments")
        self.group = topics.name("retain")
        self.watch = KafkaWatch(
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

    async def look(self) -> KafkaSeen:
        return await self.watch.look()

    async def retain(self) -> GroupSeen:
        return (await self.look()).groups[1]


@pytest.fixture
async def place(topics: Topics) -> AsyncIterator[Place]:
    here = Place(topics)
    await topics.create("runs")
    await topics.create("comments", partitions=2)
    await topics.create("dead", partitions=2)
    yield here
    await here.watch.close()


async def test_a_group_that_never_was_has_all_before_it(place: Place) -> None:
    said = time.time() - 500
    await place.produce(said, said + 100)
    seen = await place.look()
    recall, retain = seen.groups
    assert (retain.members, retain.state) == (0, GroupState.DEAD)
    assert [(lag.committed, lag.end, lag.records) for lag in retain.lags] == [(None, 2, 2), (None, 0, 0)]
    assert [lag.seconds for lag in retain.lags] == [pytest.approx(500, abs=30), 0]
    assert retain.without_commit(place.comments) == 2
    assert [(lag.records, lag.seconds) for lag in recall.lags] == [(0, 0)]
    assert seen.dead_letters == {place.topics.name("dead"): 0}


async def test_a_lag_counts_from_the_commit_and_is_as_old_as_the_first_record_behind_it(place: Place) -> None:
    now = time.time()
    await place.produce(now - 900, now - 300, now)
    await place.commit(1)
    (lag, _) = (await place.retain()).lags
    assert (lag.committed, lag.records) == (1, 2)
    assert lag.seconds == pytest.approx(300, abs=30)
    await place.commit(3)
    (lag, _) = (await place.retain()).lags
    assert (lag.committed, lag.records, lag.seconds) == (3, 0, 0)


async def test_looking_joins_no_group_and_commits_nothing(place: Place) -> None:
    await place.produce(time.time())
    for _ in range(2):
        retain = await place.retain()
        assert (retain.members, retain.lags[0].committed) == (0, None)
    admin = await place.admin()
    try:
        assert place.group not in [group for group, *_ in await admin.list_consumer_groups()]
    finally:
        await admin.close()


async def test_members_are_counted(place: Place) -> None:
    consumer = AIOKafkaConsumer(place.comments, bootstrap_servers=place.servers, group_id=place.group)
    await consumer.start()
    try:
        retain = await place.retain()
        assert (retain.members, retain.state) == (1, GroupState.STABLE)
    finally:
        await consumer.stop()
    retain = await place.retain()
    assert (retain.members, retain.state) == (0, GroupState.EMPTY)


async def test_committed_below_the_start_of_the_log(place: Place) -> None:
    now = time.time()
    await place.produce(now - 900, now - 800, now - 200, now)
    await place.commit(1)
    admin = await place.admin()
    try:
        await admin.delete_records({TopicPartition(place.comments, 0): RecordsToDelete(before_offset=2)})
    finally:
        await admin.close()
    (lag, _) = (await place.retain()).lags
    assert (lag.committed, lag.records) == (1, 2)
    assert lag.seconds == pytest.approx(200, abs=30)


async def test_a_marker_at_the_tail_is_an_offset_and_no_record(place: Place) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=place.servers, transactional_id=place.topics.name("writer"))
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send(place.comments, b"x", partition=0, timestamp_ms=int((time.time() - 70) * 1000))
        await place.commit(1)
        (lag, _) = (await place.retain()).lags
        assert (lag.committed, lag.end, lag.records, lag.seconds) == (1, 2, 1, 0)
    finally:
        await producer.stop()


async def test_a_transaction_that_nobody_ends_shows_as_lag(place: Place) -> None:
    """A lane cannot read beyond it."""
    producer = AIOKafkaProducer(bootstrap_servers=place.servers, transactional_id=place.topics.name("writer"))
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(place.comments, b"x", partition=0, timestamp_ms=int((time.time() - 70) * 1000))
        (lag, _) = (await place.retain()).lags
        assert lag.records == 1
        assert lag.seconds == pytest.approx(70, abs=30)
        await producer.abort_transaction()
    finally:
        await producer.stop()


async def test_a_large_record_in_each_partition(place: Place) -> None:
    now = time.time()
    async with AIOKafkaProducer(bootstrap_servers=place.servers) as producer:
        for partition in (0, 1):
            value, at = b"x" * 900_000, int((now - 100) * 1000)
            await producer.send_and_wait(place.comments, value, partition=partition, timestamp_ms=at)
    assert [lag.seconds for lag in (await place.retain()).lags] == [pytest.approx(100, abs=30)] * 2


async def test_a_topic_that_is_deleted_while_it_is_watched(place: Place) -> None:
    await place.produce(time.time())
    await place.commit(1)
    assert len((await place.retain()).lags) == 2
    admin = await place.admin()
    try:
        await admin.delete_topics([place.comments])
    finally:
        await admin.close()
    retain = await place.retain()
    assert (retain.topics, retain.lags) == ((place.comments,), ())


async def test_dead_letters_are_counted(place: Place) -> None:
    letters = place.topics.name("dead")
    await place.produce(1, 2, topic=letters)
    await place.produce(3, topic=letters, partition=1)
    assert (await place.look()).dead_letters == {letters: 3}


async def test_no_broker_is_an_error_with_the_address(topics: Topics) -> None:
    place = Place(topics)
    settings = place.watch._settings
    watch = KafkaWatch(settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"}))
    with pytest.raises(UpstreamDown, match=r"Kafka at 127\.0\.0\.1:1"):
        await watch.look()
