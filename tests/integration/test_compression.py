"""What producers compress, a lane can read: an upstream of ours may use any codec that Kafka has."""

import json
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from consumer.kafka.options import lane_consumer
from tests.support import lanes
from tests.support.topics import Topics

pytestmark = pytest.mark.real_kafka


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_lane_reads_every_codec(topics: Topics, codec: Any) -> None:
    ours = await lanes.settings(topics, "http://127.0.0.1:1", partitions=1)
    value = json.dumps({"eventType": "of.no.meaning", "text": "again and " * 200, "id": str(uuid.uuid4())}).encode()
    producer = AIOKafkaProducer(bootstrap_servers=ours.kafka_bootstrap_servers, compression_type=codec)
    await producer.start()
    try:
        await producer.send_and_wait(ours.topic_issue_comments, value, key=b"k")
    finally:
        await producer.stop()
    consumer = lane_consumer(ours, ours.group_retain)
    consumer.subscribe([ours.topic_issue_comments])
    await consumer.start()
    try:
        record = await consumer.getone()
    finally:
        await consumer.stop()
    assert record.value == value
