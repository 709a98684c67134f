"""Sending dead letters back, on a topic that is a list."""

import json
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from consumer.dead_letters import redrive as module
from consumer.dead_letters import render
from consumer.dead_letters.model import DeadLetter, parse_dead_letter, parse_redrive_note
from consumer.dead_letters.redrive import RedriveResult, plan_redrive, redrive
from consumer.dead_letters.topic import TopicContents
from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.producer import RecordTooLarge
from consumer.stream.records import Headers, Record
from tests.unit.dead_letters.test_model import record

SOURCES = {"comments": 8}


def record_at(position: tuple[int, int], **facts: str) -> Record:
    made = record(facts=facts)
    return Record(made.topic, *position, made.timestamp, made.key, made.value, made.headers)


def dead_letters(*positions: tuple[int, int], **facts: str) -> list[DeadLetter]:
    parsed = [parse_dead_letter(record_at(position, **facts)) for position in positions]
    return [letter for letter in parsed if letter is not None]


class FakeTopic:
    """In place of a `DeadLetterTopic`, without the positions that retention removed."""

    def __init__(self, *removed: tuple[int, int]) -> None:
        self.name = "dead"
        self._removed = removed

    async def fetch(self, letters: Collection[DeadLetter]) -> AsyncIterator[tuple[DeadLetter, Record]]:
        for letter in sorted(letters, key=lambda letter: letter.position):
            if letter.position not in self._removed:
                yield letter, record_at(letter.position)


class FakeKafka:
    """Takes records; raises a failure instead of the nth record that is sent back."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None]] = []
        self.noted: list[tuple[int, int]] = []
        self.failures: dict[int, Exception] = {}

    async def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        if failure := self.failures.pop(len(self.sent), None):
            raise failure
        if topic == "dead":
            assert partition is not None
            self.noted += parse_redrive_note(Record(topic, partition, 0, 0, key, value, tuple(headers))) or []
        else:
            self.sent.append((topic, partition))


async def run(
    letters: list[DeadLetter],
    kafka: FakeKafka,
    topic: FakeTopic | None = None,
    *,
    partitions: int = 8,
    result: RedriveResult | None = None,
) -> RedriveResult:
    result = result or RedriveResult()
    sources = {"comments": partitions}
    await redrive(letters, topic or FakeTopic(), sources, kafka.write, result, lambda *_: None, force=False)
    return result


async def test_dead_letters_are_sent_to_their_partition_and_then_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NOTE_SIZE", 2)
    kafka = FakeKafka()
    result = await run(dead_letters((0, 1), (0, 2), (0, 5), (1, 0)), kafka)
    assert kafka.sent == [("comments", 3)] * 4
    assert kafka.noted == [(0, 1), (0, 2), (0, 5), (1, 0)]
    assert [letter.label for letter in result.sent] == ["0:1", "0:2", "0:5", "1:0"]


async def test_topic_that_has_fewer_partitions_now_takes_records_by_key() -> None:
    kafka = FakeKafka()
    await run(dead_letters((0, 1)), kafka, partitions=3)
    assert kafka.sent == [("comments", None)]


async def test_dead_letters_sent_before_kafka_failed_are_noted() -> None:
    kafka, result = FakeKafka(), RedriveResult()
    kafka.failures[2] = UpstreamDown("gone", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
    with pytest.raises(UpstreamDown):
        await run(dead_letters((0, 1), (0, 2), (0, 3)), kafka, result=result)
    assert kafka.noted == [(0, 1), (0, 2)]
    assert len(result.sent) == 2


async def test_too_large_dead_letter_is_refused_and_a_removed_one_counted() -> None:
    kafka = FakeKafka()
    kafka.failures[0] = RecordTooLarge("1 MB")
    letters = dead_letters((0, 1), (0, 2), (0, 3))
    result = await run(letters, kafka, FakeTopic((0, 2)))
    assert [letter.label for letter, _ in result.refused] == ["0:1"]
    assert (result.gone, kafka.noted) == (1, [(0, 3)])
    assert render.redrive_text(result, letters, dry_run=False).splitlines() == [
        "✗ 0:1 not sent: too large with its redrive headers: 1 MB",
        "1 sent back: 1 comments",
        "1 were removed by retention meanwhile",
    ]


def test_plan_takes_the_oldest_and_names_those_that_cannot_be_sent() -> None:
    letters = [*dead_letters((0, 1), truncated_from="500"), *dead_letters((0, 2), (0, 3))]
    chosen, result = plan_redrive(letters, SOURCES, limit=1)
    assert [letter.label for letter in chosen] == ["0:2"]
    assert [letter.label for letter, _ in result.refused] == ["0:1"]
    rendered = json.loads(render.redrive_json(result, chosen, dry_run=True))
    assert rendered["chosen"] == 1
    assert rendered["refused"][0]["position"] == "0:1"


def test_list_counts_what_it_does_not_list() -> None:
    letters = dead_letters((0, 1), (0, 2), (0, 3))
    contents = TopicContents(letters, redriven=4, foreign=1, sources=SOURCES)
    assert render.list_text(letters[1:], contents, 1).splitlines() == [
        "2 open of 3: 2 rejected",
        "the 1 newest are listed; --limit lists more",
        "4 more were sent back",
        "1 records of the topic are not dead letters of paperclip-memory",
    ]
    assert render.list_text([], TopicContents([], 0, 0, SOURCES), 0) == "0 open: none"
    rendered: Any = json.loads(render.list_json(letters, contents, letters[:1]))
    assert rendered["by_reason"] == {"rejected": 3}
    assert rendered["dead_letters"][0]["position"] == "0:1"
