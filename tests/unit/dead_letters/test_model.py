import json
from collections.abc import Mapping

import pytest

from consumer.dead_letters.model import (
    Filter,
    Letter,
    moment,
    obstacle,
    read_letter,
    read_note,
    revived_headers,
    write_note,
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


def letter(**facts: str) -> Letter:
    found = read_letter(record(facts=facts))
    assert found is not None
    return found


def test_a_letter_says_what_its_headers_and_its_value_say() -> None:
    found = letter()
    assert (found.at, found.written, found.size, found.cut_from) == ("2:7", 1_796_034_100, len(VALUE), None)
    assert (found.reason, found.event_type, found.event_id) == ("rejected", "issue.comment.created", "e-1")
    assert (found.topic, found.topic_partition, found.topic_offset) == ("comments", 3, 41)
    assert (found.attempts, found.redrives, found.error) == (1, 0, "Hindsight answered 422")


@pytest.mark.parametrize("value", [None, b"", b"{", b"[1]", b'{"eventType": 5}'])
def test_a_value_that_tells_no_event_type(value: bytes | None) -> None:
    found = read_letter(record(value))
    assert found is not None
    assert found.event_type == ""


@pytest.mark.parametrize("broken", [{"partition": "x"}, {"attempts": ""}, {"truncated_from": "much"}])
def test_a_record_of_somebody_else_is_no_letter(broken: dict[str, str]) -> None:
    assert read_letter(record(facts=broken)) is None
    assert read_letter(Record("dead", 0, 0, 0, b"k", b"v")) is None


def test_a_note_names_the_letters_of_its_partition() -> None:
    value, headers = write_note([4, 9])
    assert read_note(Record("dead", 1, 12, 0, None, value, tuple(headers))) == [(1, 4), (1, 9)]
    assert read_note(Record("dead", 1, 12, 0, None, b"rubbish", tuple(headers))) == []
    assert read_note(record()) is None


@pytest.mark.parametrize(
    ("chosen", "meant"),
    [
        (Filter(), True),
        (Filter(reasons=["rejected", "invalid"]), True),
        (Filter(reasons=["invalid"]), False),
        (Filter(event_types=["issue.comment.created"]), True),
        (Filter(event_types=["issue.comment.deleted"]), False),
        (Filter(since=1_796_034_100), True),
        (Filter(since=1_796_034_101), False),
        (Filter(until=1_796_034_101), True),
        (Filter(until=1_796_034_100), False),
        (Filter(reasons=["rejected"], event_types=["x"]), False),
    ],
)
def test_a_filter(chosen: Filter, meant: bool) -> None:
    assert chosen(letter()) is meant


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
def test_a_moment(text: str, seconds: float) -> None:
    assert moment(text, now=1_000_000) == seconds


@pytest.mark.parametrize("text", ["", "h", "yesterday", "-3h", "٣h", "1.5h"])
def test_no_moment(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the caller's to write
        moment(text, now=0)


def test_what_keeps_a_letter_from_going_back() -> None:
    assert obstacle(letter(), SOURCES) is None
    assert "last 52 of its 90 bytes" in (obstacle(letter(truncated_from="90"), SOURCES) or "")
    assert "neither key nor value" in (obstacle(letter(null_value="true"), SOURCES) or "")
    assert "topic elsewhere" in (obstacle(letter(topic="elsewhere"), SOURCES) or "")


def test_a_record_goes_back_with_its_own_headers_as_a_replay() -> None:
    own: dict[str, bytes | None] = {"trace": b"t", "none": None, "repair": b"old", "replay": b"backfill"}
    headers = revived_headers(record(own=own), redrives=0, new_repair=None)
    assert headers == [
        ("trace", b"t"),
        ("none", None),
        ("repair", b"old"),
        ("redrive-attempt", b"1"),
        ("replay", b"redrive"),
    ]


def test_forced_it_has_a_new_repair_and_attempts_add_up() -> None:
    own: dict[str, bytes | None] = {"repair": b"old", "redrive-attempt": b"2"}
    found = read_letter(record(own=own))
    assert found is not None
    assert found.redrives == 2
    headers = revived_headers(record(own=own), found.redrives, lambda: "new")
    assert headers == [("redrive-attempt", b"3"), ("replay", b"redrive"), ("repair", b"new")]
