"""Dead letters: the record as it was, what happened to it, and what is truncated."""

from collections.abc import Sequence

import pytest

from consumer.errors import DeadLetterReason
from consumer.stream.dead_letter_writer import headers, write_dead_letter
from consumer.stream.records import Record, WorkItem

Written = tuple[str, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class TooLargeError(Exception):
    pass


def dead(
    key: bytes | None = b"key", value: bytes | None = b"value", own: tuple[tuple[str, bytes | None], ...] = ()
) -> WorkItem:
    item = WorkItem(Record("comments", 3, 41, 1_700_000_000_123, key, value, own), epoch=1)
    item.dead_letter_reason = DeadLetterReason.REJECTED
    item.error = "Hindsight answered 422"
    item.attempts = 2
    item.first_failure = 1_700_000_001.5
    item.facts = {"event_id": "an-event"}
    return item


def test_headers_hold_the_origin_and_the_failure_of_the_record() -> None:
    assert headers(dead()) == [
        ("dead-letter-topic", b"comments"),
        ("dead-letter-partition", b"3"),
        ("dead-letter-offset", b"41"),
        ("dead-letter-timestamp", b"1700000000123"),
        ("dead-letter-reason", b"rejected"),
        ("dead-letter-error", b"Hindsight answered 422"),
        ("dead-letter-attempts", b"2"),
        ("dead-letter-first-failure", b"1700000001500"),
        ("dead-letter-event-id", b"an-event"),
    ]


def test_the_records_headers_are_kept_and_earlier_dead_letter_headers_replaced() -> None:
    merged = headers(dead(own=(("repair", b"1"), ("dead-letter-reason", b"old"), ("empty", None))))
    assert merged[:2] == [("repair", b"1"), ("empty", None)]
    assert [value for name, value in merged if name == "dead-letter-reason"] == [b"rejected"]


def test_an_error_text_is_truncated_and_made_encodable() -> None:
    item = dead()
    item.error = "\ud83d" + "x" * 1_000
    error = dict(headers(item))["dead-letter-error"]
    assert error == b"?" + b"x" * 499


async def written(item: WorkItem, limit: int | None = None) -> list[Written]:
    """What is written to a topic that takes `limit` bytes of value."""
    taken: list[Written] = []

    async def write(
        topic: str, key: bytes | None, value: bytes | None, extra: Sequence[tuple[str, bytes | None]]
    ) -> None:
        if limit is not None and len(value or b"") > limit:
            raise TooLargeError
        taken.append((topic, key, value, extra))

    await write_dead_letter(item, "dead", write, TooLargeError)
    return taken


async def test_a_dead_letter_has_the_raw_key_and_value() -> None:
    [(topic, key, value, extra)] = await written(dead(b"\x00\xff", b"\xff{"))
    assert (topic, key, value) == ("dead", b"\x00\xff", b"\xff{")
    assert list(extra) == headers(dead())


async def test_a_value_that_does_not_fit_is_truncated_and_flagged() -> None:
    [(_, _, value, extra)] = await written(dead(value=b"0123456789"), limit=4)
    assert value == b"01"
    assert dict(extra)["dead-letter-truncated-from"] == b"10"


async def test_a_value_that_just_fits_is_not_truncated() -> None:
    [(_, _, value, extra)] = await written(dead(value=b"0123"), limit=4)
    assert value == b"0123"
    assert "dead-letter-truncated-from" not in dict(extra)


@pytest.mark.parametrize("value", [b"0123456789", b"", None])
async def test_a_dead_letter_that_does_not_fit_without_its_value_raises(value: bytes | None) -> None:
    with pytest.raises(TooLargeError):
        await written(dead(value=value), limit=-1)


async def test_any_other_write_failure_raises() -> None:
    async def write(*_: object) -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        await write_dead_letter(dead(), "dead", write, TooLargeError)


@pytest.mark.parametrize(
    ("key", "value", "taken"), [(None, b"v", b"v"), (b"k", None, None), (b"", None, None), (None, None, b"")]
)
async def test_only_a_record_with_neither_key_nor_value_gets_an_empty_value(
    key: bytes | None, value: bytes | None, taken: bytes | None
) -> None:
    """aiokafka asserts that one of the two is there."""
    [(_, written_key, written_value, extra)] = await written(dead(key, value))
    assert (written_key, written_value) == (key, taken)
    assert ("dead-letter-null-value" in dict(extra)) is (key is None and value is None)
