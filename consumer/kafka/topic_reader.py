"""Reads topics with an open consumer that has no group and starts at the earliest record."""

import time
from collections.abc import AsyncIterator, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import ConsumerRecord

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.stream.unreadable import UnreadableRecord

STALLED = 30.0
"""Seconds without a single record after which reading is given up."""

Message = ConsumerRecord[bytes, bytes]


async def read_topic(consumer: AIOKafkaConsumer, topic: str) -> AsyncIterator[Message]:
    """Yield a topic's records up to its present end.

    Raises:
        UpstreamDown: the topic does not exist.
        KafkaError: Kafka cannot be reached, or sends no more records.
    """
    async for message in read_until(consumer, await assign_topic(consumer, topic)):
        yield message


async def assign_topic(consumer: AIOKafkaConsumer, topic: str) -> dict[TopicPartition, int]:
    """Assign all partitions of a topic; returns their end offsets. Raises as `read_topic`."""
    partitions = (await fetch_partitions(consumer, topic))[topic]
    if not partitions:
        message = f"Kafka has no topic {topic}: run `paperclip-memory topics`"
        raise UpstreamDown(message, upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
    consumer.assign(partitions)
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    return ends


async def fetch_partitions(consumer: AIOKafkaConsumer, *topics: str) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic; none for a topic that does not exist. The consumer need not be subscribed."""
    cluster = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - the public `topics()` keeps only the names
    return {
        topic: [TopicPartition(topic, number) for number in sorted(cluster.partitions_for_topic(topic) or ())]
        for topic in topics
    }


async def read_until(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> AsyncIterator[Message]:
    """Yield the records of assigned partitions from the consumer's positions up to `ends`.

    Records beyond `ends` that arrive in the last fetch are yielded too: the consumer's positions are past them.

    Raises:
        KafkaTimeoutError: no record arrived for `STALLED` seconds.
    """
    last_arrival = time.monotonic()
    behind = [partition for partition, end in ends.items() if end > 0]
    while behind := [partition for partition in behind if await consumer.position(partition) < ends[partition]]:
        batches = await consumer.getmany(*behind, timeout_ms=500, max_records=500)
        if batches:
            last_arrival = time.monotonic()
        elif time.monotonic() - last_arrival > STALLED:
            raise KafkaTimeoutError(f"topic {behind[0].topic} sent no record for {STALLED:.0f} s")
        for messages in batches.values():
            for message in messages:
                if not isinstance(message, UnreadableRecord):
                    yield message
