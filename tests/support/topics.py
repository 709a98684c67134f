"""Topics that belong to one test."""

from collections.abc import Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from consumer.kafka.options import groupless_consumer
from consumer.kafka.topic_reader import Message, read_topic
from consumer.settings.model import Settings
from tests.support.kafka import Broker


class Topics:
    """Names that no other test has, and the topics that it creates under them."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix

    def name(self, suffix: str) -> str:
        """A name for a topic, a group, a client: the same for the same suffix."""
        return f"{self.prefix}.{suffix}"

    async def create(self, suffix: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name."""
        name = self.name(suffix)
        topic = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers)
        await admin.start()
        try:
            reply: Any = await admin.create_topics([topic])
        finally:
            await admin.close()
        for _, code, message in reply.topic_errors:
            if code:
                raise RuntimeError(f"{name} was not created: error {code}, {message}")
        return name


async def read_all(settings: Settings, topic: str) -> list[Message]:
    """All records of a topic."""
    consumer = groupless_consumer(settings)
    await consumer.start()
    try:
        return [message async for message in read_topic(consumer, topic)]
    finally:
        await consumer.stop()
