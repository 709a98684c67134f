"""Records and items for the tests of the stream engine."""

from consumer.stream.records import Partition, Record, WorkItem

TOPIC = "comments"
P0, P1 = Partition(TOPIC, 0), Partition(TOPIC, 1)


def record(offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, 1_000_000, key, value)


def item(offset: int = 0, key: bytes | None = b"k", epoch: int = 0) -> WorkItem:
    return WorkItem(record(offset, key), epoch)
