"""Writes the demo's events to Kafka and reads its recalls."""

import asyncio
import json
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from consumer.kafka.topic_reader import read_topic
from demo.messages import Message
from schemas.recalls import RecallRecord


def publish(bootstrap_servers: str, messages: Sequence[Message]) -> None:
    """Write events in order, each acknowledged before the next. Their Kafka timestamps are now."""

    async def write() -> None:
        # The pip-only broker has no idempotent producers; one at a time keeps the order all the same.
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=False)
        await producer.start()
        try:
            for message in messages:
                value = json.dumps(message.event).encode()
                await producer.send_and_wait(message.topic, value, key=message.key.encode())
        finally:
            await producer.stop()

    asyncio.run(write())


def wait_for_recall(bootstrap_servers: str, topic: str, run_id: str, deadline: float) -> RecallRecord | None:
    """The recall record of a run; None if there is none within `deadline` seconds."""

    async def read() -> RecallRecord | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            end = time.monotonic() + deadline
            while time.monotonic() < end:
                async for record in read_topic(consumer, topic):
                    if record.key == run_id.encode() and record.value is not None:
                        return RecallRecord.model_validate(json.loads(record.value))
                await asyncio.sleep(0.5)
            return None
        finally:
            await consumer.stop()

    return asyncio.run(read())
