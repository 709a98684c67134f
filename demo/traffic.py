"""What the demo writes to Kafka and reads from it."""

import asyncio
import json
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from consumer.kafka.topic_reader import read_topic
from demo.plays import Play
from schemas.recalls import RecallRecord


def publish(bootstrap_servers: str, plays: Sequence[Play]) -> None:
    """Write events in their order, each acknowledged before the next; their Kafka timestamps are now."""

    async def write() -> None:
        # The pip-only broker has no idempotent producers; one at a time keeps the order all the same.
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=False)
        await producer.start()
        try:
            for play in plays:
                await producer.send_and_wait(play.topic, json.dumps(play.event).encode(), key=play.key.encode())
        finally:
            await producer.stop()

    asyncio.run(write())


def recalled(bootstrap_servers: str, topic: str, run_id: str, deadline: float) -> RecallRecord | None:
    """What was recalled for a run, from the recalls topic; None if nothing was within `deadline` seconds."""

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
