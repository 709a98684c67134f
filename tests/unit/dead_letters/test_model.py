import json
from collections.abc import Mapping

import pytest

from consumer.dead_letters.model import (
    DeadLetter,
    DeadLetterFilter,
    build_redrive_note,
    parse_dead_letter,
    parse_redrive_note,
    parse_time_or_age,
    redrive_blocker,
    redrive_headers,
)
from consumer.stream.dead_letter_writer import HEADER
from consumer.stream.records import Record

SOURCES = {"comments"}
FACTS = {
    "topic": "comments",
    "partition": "3",
    "offset": "41",
    "timestamp": "1796034000000",
    "reason": "rejected",
    "error": "Hindsight answered 422",
    "attempts": "1",
    "first-failure": "1796034000000",
    "event-id": "e-1",
}
VALUE = json.dumps({"eventType": "issue.comment.created"}).encode()


def record(
    value: bytes | None = VALUE,
    own: Mapping[str, bytes | None] = {},
    facts: Mapping[str, str] = {},
) -> Record:
    ours = {HEADER + name.replace("_", "-"): text.encode() for name, text in (FACTS | dict(facts)).items()}
    return Record("dead", 2, 7, 1_796_034_100_000, b"key", value, tuple({**own, **ours}.items()))


def letter(**facts: str) -> DeadLetter:
    parsed = parse_dead_letter(record(facts=facts))
    assert parsed is not None
    return parsed


def test_dead_letter_has_what_its_headers_and_value_say() -> None:
    parsed = letter()
    assert (parsed.label, parsed.written, parsed.size, parsed.truncated_from) == (
        "2:7",
        1_796_034_100,
        len(VALUE),
        None,
    )
    assert (parsed.reason, parsed.event_type, parsed.event_id) == ("rejected", "issue.comment.created", "e-1")
    assert (parsed.topic, parsed.topic_partition, parsed.topic_offset) == ("comments", 3, 41)
    assert (parsed.attempts, parsed.redrives, parsed.error) == (1, 0, "Hindsight answered 422")


@pytest.mark.parametrize("value", [None, b"", b"{", b"[1]", b'{"eventType": 5}'])
def test_value_without_an_event_type_has_an_empty_one(value: bytes | None) -> None:
    parsed = parse_dead_letter(record(value))
    assert parsed is not None
    assert parsed.event_type == ""


@pytest.mark.parametrize("broken", [{"partition": "x"}, {"attempts": ""}, {"truncated_from": "much"}])
def test_record_of_another_writer_is_not_a_dead_letter(broken: dict[str, str]) -> None:
    assert parse_dead_letter(record(facts=broken)) is None
    assert parse_dead_letter(Record("dead", 0, 0, 0, b"k", b"v")) is None


def test_redrive_note_names_dead_letters_of_its_partition() -> None:
    value, headers = build_redrive_note([4, 9])
    assert parse_redrive_note(Record("dead", 1, 12, 0, None, value, tuple(headers))) == [(1, 4), (1, 9)]
    assert parse_redrive_note(Record("dead", 1, 12, 0, None, b"rubbish", tuple(headers))) == []
    assert parse_redrive_note(record()) is None


@pytest.mark.parametrize(
    ("letter_filter", "selected"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(reasons=["rejected", "invalid"]), True),
        (DeadLetterFilter(reasons=["invalid"]), False),
        (DeadLetterFilter(event_types=["issue.comment.created"]), True),
        (DeadLetterFilter(event_types=["issue.comment.deleted"]), False),
        (DeadLetterFilter(since=1_796_034_100), True),
        (DeadLetterFilter(since=1_796_034_101), False),
        (DeadLetterFilter(until=1_796_034_101), True),
        (DeadLetterFilter(until=1_796_034_100), False),
        (DeadLetterFilter(reasons=["rejected"], event_types=["x"]), False),
    ],
)
def test_filter_selects_by_reason_type_and_time(letter_filter: DeadLetterFilter, selected: bool) -> None:
    assert letter_filter(letter()) is selected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:10", 600),
        ("1970-01-01T01:10+01:00", 600),
        ("1970-01-02", 86_400),
        ("30s", 999_970),
        ("2m", 999_880),
        ("1h", 996_400),
        ("7d", 395_200),
    ],
)
def test_time_or_age_is_seconds_since_the_epoch(text: str, seconds: float) -> None:
    assert parse_time_or_age(text, now=1_000_000) == seconds


@pytest.mark.parametrize("text", ["", "h", "yesterday", "-3h", "٣h", "1.5h"])
def test_text_that_is_neither_time_nor_age_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the caller's to write
        parse_time_or_age(text, now=0)


def test_truncated_empty_and_foreign_dead_letters_cannot_be_sent_back() -> None:
    assert redrive_blocker(letter(), SOURCES) is None
    assert "last 52 of its 90 bytes" in (redrive_blocker(letter(truncated_from="90"), SOURCES) or "")
    assert "could not read" in (redrive_blocker(letter(reason="unreadable", null_value="true"), SOURCES) or "")
    assert "neither key nor value" in (redrive_blocker(letter(null_value="true"), SOURCES) or "")
    assert "topic elsewhere" in (redrive_blocker(letter(topic="elsewhere"), SOURCES) or "")


def test_record_is_sent_back_with_its_own_headers_as_a_replay() -> None:
    own: dict[str, bytes | None] = {"trace": b"t", "none": None, "repair": b"old", "replay": b"backfill"}
    headers = redrive_headers(record(own=own), redrives=0, new_repair=None)
    assert headers == [
        ("trace", b"t"),
        ("none", None),
        ("repair", b"old"),
        ("redrive-attempt", b"1"),
        ("replay", b"redrive"),
    ]


def test_forced_record_has_a_new_repair_and_a_higher_attempt() -> None:
    own: dict[str, bytes | None] = {"repair": b"old", "redrive-attempt": b"2"}
    parsed = parse_dead_letter(record(own=own))
    assert parsed is not None
    assert parsed.redrives == 2
    headers = redrive_headers(record(own=own), parsed.redrives, lambda: "new")
    assert headers == [("redrive-attempt", b"3"), ("replay", b"redrive"), ("repair", b"new")]
