"""The session's broker serves what the project's clients ask of every broker."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.kafka import Broker
from tests.support.topics import Topics


async def test_records_come_back_in_order_and_commits_stay(broker: Broker, topics: Topics) -> None:
    topic = await topics.create("events", partitions=2)
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=broker.idempotence
    )
    await producer.start()
    for number in range(10):
        await producer.send_and_wait(topic, str(number).encode(), key=b"one key")
    await producer.stop()

    for expected in (list(range(10)), []):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topics.name("group"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        seen: list[int] = []
        while len(seen) < len(expected):
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                seen += [int(record.value or b"-1") for record in batch]
        assert seen == expected
        lag = sum((await consumer.end_offsets(consumer.assignment())).values()) - sum(
            [await consumer.position(partition) for partition in consumer.assignment()]
        )
        assert lag == 0
        await consumer.commit()
        await consumer.stop()
