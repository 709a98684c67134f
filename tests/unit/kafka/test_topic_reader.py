from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition

from consumer.kafka.topic_reader import read_until
from consumer.stream.unreadable import UnreadableRecord

TP = TopicPartition("t", 0)


class Consumer:
    """Returns its messages in one fetch."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.offset = 0

    async def position(self, _tp: TopicPartition) -> int:
        return self.offset

    async def getmany(self, *_tps: TopicPartition, **_options: int) -> dict[TopicPartition, list[Any]]:
        self.offset = len(self.messages)
        return {TP: self.messages}


async def test_an_unreadable_record_is_skipped_and_the_topic_read_to_its_end() -> None:
    unreadable = UnreadableRecord("t", 0, 1, -1, 0, None, None, None, -1, -1, (), "CorruptRecordException")
    consumer: Any = Consumer(SimpleNamespace(offset=0), unreadable, SimpleNamespace(offset=2))
    assert [message.offset async for message in read_until(consumer, {TP: 3})] == [0, 2]
