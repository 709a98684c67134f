"""Redriving, on a topic that is a list."""

import json
from collections.abc import AsyncIterator, Collection
from typing import Any, cast

import pytest

from consumer.dead_letters import redrive as module
from consumer.dead_letters import render
from consumer.dead_letters.model import Letter, read_letter, read_note
from consumer.dead_letters.redrive import Outcome, plan, redrive
from consumer.dead_letters.topic import LetterTopic, Survey
from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.producer import RecordTooLarge
from consumer.stream.records import Headers, Record
from tests.unit.dead_letters.test_model import record

SOURCES = {"comments": 8}


def letters(*places: tuple[int, int], **facts: str) -> list[Letter]:
    found = [read_letter(at(place, **facts)) for place in places]
    return [each for each in found if each is not None]


def at(place: tuple[int, int], **facts: str) -> Record:
    made = record(facts=facts)
    return Record(made.topic, *place, made.timestamp, made.key, made.value, made.headers)


class Shelf:
    """What `LetterTopic` is to a redrive."""

    name = "dead"

    def __init__(self, *gone: tuple[int, int]) -> None:
        self._gone = gone

    async def fetch(self, wanted: Collection[Letter]) -> AsyncIterator[tuple[Letter, Record]]:
        for letter in sorted(wanted, key=lambda each: each.place):
            if letter.place not in self._gone:
                yield letter, at(letter.place)


class Kafka:
    """Takes records, until it is told to fail."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None]] = []
        self.notes: list[tuple[int, int]] = []
        self.failures: dict[int, Exception] = {}

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        if failure := self.failures.pop(len(self.sent), None):
            raise failure
        if topic == "dead":
            assert partition is not None
            self.notes += read_note(Record(topic, partition, 0, 0, key, value, tuple(headers))) or []
        else:
            self.sent.append((topic, partition))


async def run(chosen: list[Letter], kafka: Kafka, shelf: Shelf | None = None, **sources: int) -> Outcome:
    outcome = Outcome()
    topic = cast("LetterTopic", shelf or Shelf())
    counts = {**SOURCES, **sources}
    await redrive(chosen, topic, counts, kafka.publish, outcome, lambda *_: None, force=False)
    return outcome


async def test_each_is_sent_to_its_partition_and_then_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NOTED_AT_ONCE", 2)
    kafka = Kafka()
    outcome = await run(letters((0, 1), (0, 2), (0, 5), (1, 0)), kafka)
    assert kafka.sent == [("comments", 3)] * 4
    assert kafka.notes == [(0, 1), (0, 2), (0, 5), (1, 0)]
    assert [each.at for each in outcome.sent] == ["0:1", "0:2", "0:5", "1:0"]


async def test_a_topic_with_fewer_partitions_now_takes_them_by_key() -> None:
    kafka = Kafka()
    await run(letters((0, 1)), kafka, comments=3)
    assert kafka.sent == [("comments", None)]


async def test_what_was_sent_before_kafka_failed_is_noted() -> None:
    kafka, outcome = Kafka(), Outcome()
    kafka.failures[2] = UpstreamDown("gone", upstream=Upstream.KAFKA, kind=DownKind.UNREACHABLE)
    topic = cast("LetterTopic", Shelf())
    with pytest.raises(UpstreamDown):
        await redrive(
            letters((0, 1), (0, 2), (0, 3)), topic, SOURCES, kafka.publish, outcome, lambda *_: None, force=False
        )
    assert kafka.notes == [(0, 1), (0, 2)]
    assert len(outcome.sent) == 2


async def test_one_that_does_not_fit_any_more_is_refused_and_one_that_is_gone_is_counted() -> None:
    kafka = Kafka()
    kafka.failures[0] = RecordTooLarge("1 MB")
    outcome = await run(letters((0, 1), (0, 2), (0, 3)), kafka, Shelf((0, 2)))
    assert [letter.at for letter, _ in outcome.refused] == ["0:1"]
    assert (outcome.gone, kafka.notes) == (1, [(0, 3)])
    text = render.redrive_text(outcome, letters((0, 1), (0, 2), (0, 3)), dry_run=False)
    assert text.splitlines() == [
        "✗ 0:1 not sent: with its headers it is too large now: 1 MB",
        "1 sent back: 1 comments",
        "1 were removed by retention meanwhile",
    ]


def test_a_plan_takes_the_oldest_that_can_go_and_names_those_that_cannot() -> None:
    found = [*letters((0, 1), truncated_from="500"), *letters((0, 2), (0, 3))]
    chosen, outcome = plan(found, SOURCES, limit=1)
    assert [each.at for each in chosen] == ["0:2"]
    assert [letter.at for letter, _ in outcome.refused] == ["0:1"]
    shown = json.loads(render.redrive_json(outcome, chosen, dry_run=True))
    assert shown["chosen"] == 1
    assert shown["refused"][0]["letter"] == "0:1"


def test_the_list_tells_what_it_does_not_show() -> None:
    found = letters((0, 1), (0, 2), (0, 3))
    survey = Survey(found, redriven=4, foreign=1, sources=SOURCES)
    assert render.list_text(found[1:], survey, 1).splitlines() == [
        "2 open of 3: 2 rejected",
        "shown are the 1 newest; --limit shows more",
        "4 more were sent back",
        "1 records of the topic are no dead letters of ours",
    ]
    assert render.list_text([], Survey([], 0, 0, SOURCES), 0) == "0 open: none"
    listed: Any = json.loads(render.list_json(found, survey, found[:1]))
    assert listed["by_reason"] == {"rejected": 3}
    assert listed["letters"][0]["letter"] == "0:1"
