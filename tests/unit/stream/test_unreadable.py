"""Records that aiokafka cannot read: placeholders in their place, and all others around them."""

import gzip
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from consumer.stream import unreadable
from consumer.stream.unreadable import UnreadableRecord, skip_unreadable_records

TP = TopicPartition("t", 3)
GOOD: list[tuple[str, bytes | None]] = [("name", b"1")]
NOT_UTF8: list[tuple[str, bytes | None]] = [("name", b"1"), ("MARK", b"2")]


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PartitionRecords", "MemoryRecords"):
        monkeypatch.setattr(fetcher, name, getattr(fetcher, name))
    monkeypatch.setattr(unreadable, "_failed_once", {})
    skip_unreadable_records()


def batch(base: int, headers: Sequence[list[tuple[str, bytes | None]]]) -> bytearray:
    """A batch of one record for each list of headers; the header name MARK becomes one that is not UTF-8."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    for n, own in enumerate(headers):
        builder.append(n, timestamp=1_000 + n, key=b"k%d" % n, value=b"v%d" % n, headers=own)
    return signed(bytearray(bytes(builder.build()).replace(b"MARK", b"\xff\xfe\xfd\xfc")), base)


def signed(raw: bytearray, base: int) -> bytearray:
    raw[0:8] = struct.pack(">q", base)
    raw[17:21] = struct.pack(">I", calc_crc32c(bytes(raw[21:])))
    return raw


def read(*batches: bytearray, start: int = 0) -> list[Any]:
    """What a consumer at `start` gets of a response with these batches."""
    records: Any = vars(fetcher)["MemoryRecords"](b"".join(map(bytes, batches)))
    assert records.size_in_bytes() == sum(map(len, batches))
    found: Any = vars(fetcher)["PartitionRecords"](TP, records, [], start, None, None, True, fetcher.READ_COMMITTED)
    messages = list(found)
    read.position = found.next_fetch_offset  # type: ignore[attr-defined]
    return messages


def position() -> int:
    return int(read.position)  # type: ignore[attr-defined]


def summary(messages: Sequence[Any]) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in messages]


@pytest.mark.parametrize("compression", [False, True])
def test_a_header_name_that_is_not_utf8_costs_only_its_own_record(compression: bool) -> None:
    raw = batch(10, [GOOD, NOT_UTF8, GOOD])
    raw = compressed(raw) if compression else raw
    messages = read(batch(8, [GOOD, GOOD]), raw, batch(13, [GOOD]), start=8)
    assert summary(messages) == [(8, b"v0"), (9, b"v1"), (10, b"v0"), (11, None), (12, b"v2"), (13, b"v0")]
    unreadable_one = messages[3]
    assert isinstance(unreadable_one, UnreadableRecord)
    assert (unreadable_one.topic, unreadable_one.partition, unreadable_one.timestamp) == ("t", 3, 1_001)
    assert (unreadable_one.key, unreadable_one.headers) == (None, ())
    assert "utf-8" in unreadable_one.error
    assert messages[4].headers == (("name", b"1"),)
    assert position() == 14


def compressed(raw: bytearray) -> bytearray:
    """The batch with gzip."""
    raw = bytearray(bytes(raw[:61]) + gzip.compress(bytes(raw[61:])))
    raw[21:23] = struct.pack(">h", 1)
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    return signed(raw, struct.unpack(">q", raw[:8])[0])


@pytest.mark.parametrize(("start", "offsets"), [(11, [11, 12]), (12, [12]), (13, [])])
def test_reading_from_within_a_batch_repeats_nothing(start: int, offsets: list[int]) -> None:
    assert [message.offset for message in read(batch(10, [NOT_UTF8, NOT_UTF8, GOOD]), start=start)] == offsets
    assert position() == 13


def test_a_corrupt_batch_raises_once_and_is_then_one_placeholder() -> None:
    """The first time, perhaps only its transfer failed."""
    corrupt = batch(10, [GOOD, GOOD, GOOD])
    corrupt[-1] ^= 1
    with pytest.raises(CorruptRecordException):
        read(corrupt, batch(13, [GOOD]), start=10)
    messages = read(corrupt, batch(13, [GOOD]), start=10)
    assert summary(messages) == [(10, None), (13, b"v0")]
    assert (messages[0].timestamp, position()) == (-1, 14)
    assert summary(read(corrupt, start=11)) == [(11, None)]
    assert position() == 13


def test_a_corrupt_batch_with_an_impossible_end_is_left_record_by_record() -> None:
    corrupt = batch(10, [GOOD, GOOD])
    corrupt[23:27] = struct.pack(">i", 1_000_000)
    with pytest.raises(CorruptRecordException):
        read(corrupt, start=10)
    assert summary(read(corrupt, start=10)) == [(10, None)]
    assert position() == 11


def test_a_batch_that_cannot_be_decompressed_is_one_placeholder() -> None:
    raw = compressed(batch(10, [GOOD, GOOD]))
    raw[70:80] = b"0123456789"
    messages = read(signed(raw, 10), batch(12, [GOOD]), start=10)
    assert summary(messages) == [(10, None), (12, b"v0")]


def test_a_codec_that_is_not_installed_is_not_the_records_fault() -> None:
    raw = batch(10, [GOOD])
    raw[21:23] = struct.pack(">h", 7)
    with pytest.raises(UnsupportedCodecError):
        read(signed(raw, 10), start=10)


def test_batches_of_the_old_format_are_left_to_the_client() -> None:
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=1_000)
    builder.append(0, timestamp=1, key=b"k", value=b"v")
    raw = bytearray(builder.build())
    assert summary(read(raw)) == [(0, b"v")]
    raw[-1] ^= 1
    with pytest.raises(CorruptRecordException):
        read(raw)
