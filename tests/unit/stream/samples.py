"""Records and items for the tests of the stream engine."""

from consumer.stream.items import Item
from consumer.stream.records import Partition, Record

TOPIC = "comments"
P0, P1 = Partition(TOPIC, 0), Partition(TOPIC, 1)


def record(offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, 1_000_000, key, value)


def item(offset: int = 0, key: bytes | None = b"k", epoch: int = 0) -> Item:
    return Item(record(offset, key), epoch)
