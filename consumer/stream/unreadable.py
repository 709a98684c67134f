"""Makes aiokafka return a placeholder for a record that it cannot read.

A header name that is not UTF-8, or a corrupt batch, makes `getmany` raise: for ever, for all partitions, and with the
records that it had already taken of others. Kafka's own tools write such records, and brokers take them.
"""

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.default_records import _DefaultRecordBatchPy as Batch
from aiokafka.record.util import decode_varint
from aiokafka.structs import ConsumerRecord

_log = logging.getLogger(__name__)
_LENGTH = struct.Struct(">qi")
_MAGIC_OFFSET = 16
_SMALLEST_RECORD = 7
_fetcher: Any = fetcher
_READ, _RECORDS = _fetcher.PartitionRecords, _fetcher.MemoryRecords
_failed_once: dict[TopicPartition, int] = {}


@dataclass
class UnreadableRecord(ConsumerRecord[bytes, bytes]):
    """Stands for one record, or for a whole batch, that cannot be read. It has no key, value and headers."""

    error: str


def skip_unreadable_records() -> None:
    """Apply to all consumers of this process that start from now on."""
    _fetcher.PartitionRecords = _PartitionRecords
    _fetcher.MemoryRecords = _MemoryRecords


class _MemoryRecords:
    """The batches of a response, and the bytes of the current one."""

    def __init__(self, data: bytes) -> None:
        self._records: Any = _RECORDS(data)
        self._data = data
        self._start = self._end = 0
        self.has_next, self.size_in_bytes = self._records.has_next, self._records.size_in_bytes

    def next_batch(self) -> Any:
        self._start = self._end
        _, length = _LENGTH.unpack_from(self._data, self._start)
        self._end = self._start + _LENGTH.size + length
        return self._records.next_batch()

    def current_bytes(self) -> bytes:
        return bytes(self._data[self._start : self._end])

    def next_base_offset(self) -> int | None:
        """Where the next batch begins; None if the response ends here."""
        return int(_LENGTH.unpack_from(self._data, self._end)[0]) if self.has_next() else None


class _PartitionRecords(_READ):  # type: ignore[misc, valid-type]
    next_fetch_offset: int

    def _unpack_records(self) -> Iterator[Any]:
        while True:
            try:
                yield from super()._unpack_records()
            except UnsupportedCodecError:
                raise  # our installation's fault
            except Exception as error:
                raw = self._records.current_bytes()
                if len(raw) <= _MAGIC_OFFSET or raw[_MAGIC_OFFSET] < 2:
                    raise
                yield from self._read_batch(Batch(bytearray(raw)), error)
            else:
                return

    def _read_batch(self, batch: Any, error: Exception) -> Iterator[Any]:
        """Read a batch again, record by record."""
        if not batch.validate_crc():
            if _failed_once.get(self._tp) != batch.base_offset:
                _failed_once[self._tp] = batch.base_offset  # perhaps only its transfer failed
                raise error
            yield self._placeholder(batch.base_offset, -1, error)
            self.next_fetch_offset = max(self.next_fetch_offset, self._end_of_corrupt(batch))
            return
        try:
            iter(batch)
        except Exception as broken:  # noqa: BLE001 - what decompresses it may raise anything
            yield self._placeholder(batch.base_offset, batch.first_timestamp, broken)
        else:
            for offset, timestamp, record, failure in _records(batch):
                if offset < self.next_fetch_offset:
                    continue
                if record is None:
                    yield self._placeholder(offset, timestamp, failure)
                else:
                    self.next_fetch_offset = offset + 1
                    yield self._consumer_record(self._tp, record)
        self.next_fetch_offset = batch.next_offset

    def _end_of_corrupt(self, batch: Any) -> int:
        """The offset after a batch whose header may be wrong."""
        following = self._records.next_base_offset()
        if following is not None:
            return int(following)
        most = len(self._records.current_bytes()) // _SMALLEST_RECORD
        return int(batch.next_offset) if batch.base_offset < batch.next_offset <= batch.base_offset + most else 0

    def _placeholder(self, offset: int, timestamp: int, error: Exception | None) -> UnreadableRecord:
        offset = max(offset, self.next_fetch_offset)
        self.next_fetch_offset = offset + 1
        topic, partition = self._tp
        reason = f"{type(error).__name__}: {error}"
        _log.warning("skipping an unreadable record: %s[%d]@%d: %s", topic, partition, offset, reason)
        return UnreadableRecord(topic, partition, offset, timestamp, 0, None, None, None, -1, -1, (), reason)


def _records(batch: Any) -> Iterator[tuple[int, int, Any, Exception | None]]:
    """Offset, timestamp and record of each; None and the error in place of a record that cannot be read."""
    for _ in range(batch._num_records):  # noqa: SLF001 - aiokafka's reader ends at the first error
        length, start = decode_varint(batch._buffer, batch._pos)  # noqa: SLF001
        try:
            record = batch._read_msg()  # noqa: SLF001
        except Exception as error:  # noqa: BLE001
            _, at = decode_varint(batch._buffer, start)  # noqa: SLF001 - attributes
            timestamp, at = decode_varint(batch._buffer, at)  # noqa: SLF001
            offset, _ = decode_varint(batch._buffer, at)  # noqa: SLF001
            batch._pos = start + length  # noqa: SLF001
            yield batch.base_offset + offset, batch.first_timestamp + timestamp, None, error
        else:
            yield record.offset, record.timestamp, record, None
