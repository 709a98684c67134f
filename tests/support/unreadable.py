"""Writes what aiokafka cannot read."""

import struct

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c


async def send_unreadable(producer: AIOKafkaProducer, topic: str) -> int:
    """Send a batch of three records to partition 0; the second has a header name that is not UTF-8. Returns its offset.

    The producer must not be idempotent. The first and the last record are comments of no type, so they are ignored.
    """
    batch = producer.create_batch()
    for header in ("name", "MARK", "name"):
        batch.append(key=None, value=b'{"eventType": "none"}', timestamp=None, headers=[(header, b"1")])
    batch.close()
    raw = bytearray(bytes(batch._build()).replace(b"MARK", b"\xff\xfe\xfd\xfc"))
    raw[17:21] = struct.pack(">I", calc_crc32c(bytes(raw[21:])))
    batch._buffer = raw
    metadata = await (await producer.send_batch(batch, topic, partition=0))
    return int(metadata.offset) + 1
