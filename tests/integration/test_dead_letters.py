"""`dead-letters list` and `redrive`, on a broker, with letters as the engine writes them."""

import asyncio
import json
import time
from functools import partial
from typing import Any

import pytest
from aiokafka import ConsumerRecord

from consumer.commands import dead_letters
from consumer.dead_letters.model import Filter
from consumer.errors import DeadLetterReason
from consumer.kafka.options import producer
from consumer.kafka.producer import Publisher, RecordTooLarge
from consumer.settings.model import Settings
from consumer.stream.dead_letter_writer import write_dead_letter
from consumer.stream.hooks import AttemptOutcome
from consumer.stream.records import Record, WorkItem
from tests.chaos.events import seeded_rng, versions
from tests.support import lanes
from tests.support.scripted import ScriptedHindsight, accept, until
from tests.support.topics import Topics, read_all

EVERYTHING = Filter()
CREATED = json.dumps({"eventType": "issue.comment.created", "body": "caf\\ud83d"}).encode()


class Place:
    """The topics of one test, and what the commands say of them."""

    def __init__(self, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings = settings
        self._capsys = capsys

    async def bury(self, number: int, reason: DeadLetterReason, value: bytes = CREATED, key: bytes = b"key") -> None:
        """Have the engine write a dead letter."""
        publisher = Publisher(partial(producer, self.settings))
        headers = (("trace", b"%d" % number), ("replay", b"backfill"))
        item = WorkItem(
            Record(self.settings.topic_issue_comments, 1, number, 1_700_000_000_000, key, value, headers), 1
        )
        item.dead_letter_reason, item.error, item.attempts = reason, "Hindsight answered 422", 1
        await write_dead_letter(item, self.settings.topic_dead_letters, publisher.publish, RecordTooLarge)
        await publisher.close()

    async def shown(self, wanted: Filter = EVERYTHING, limit: int = 50) -> Any:
        assert await dead_letters.list_letters(self.settings, wanted, limit, as_json=True) == 0
        return json.loads(self._capsys.readouterr().out)

    async def redrive(
        self, wanted: Filter = EVERYTHING, limit: int | None = None, *, dry_run: bool = False, force: bool = False
    ) -> Any:
        run = dead_letters.redrive_letters(self.settings, wanted, limit, dry_run=dry_run, force=force, as_json=True)
        assert await run == 0
        return json.loads(self._capsys.readouterr().out)

    async def came_back(self) -> list[ConsumerRecord[bytes, bytes]]:
        """What stands in the source topic."""
        return await read_all(self.settings, self.settings.topic_issue_comments)


@pytest.fixture
async def place(topics: Topics, capsys: pytest.CaptureFixture[str]) -> Place:
    settings = Settings(
        hindsight_api_url="http://localhost:1",
        kafka_bootstrap_servers=topics.broker.bootstrap_servers,
        kafka_enable_idempotence=topics.broker.idempotence,
        topic_agent_runs=await topics.create("runs"),
        topic_issue_comments=await topics.create("comments", partitions=3),
        topic_dead_letters=await topics.create("dead", partitions=2),
    )
    return Place(settings, capsys)


async def test_a_letter_goes_back_as_it_was_once(place: Place) -> None:
    await place.bury(7, DeadLetterReason.REJECTED)
    before = time.time()

    assert (await place.redrive(dry_run=True))["chosen"] == 1
    assert await place.came_back() == []
    done = await place.redrive()
    assert len(done["sent"]) == 1

    (record,) = await place.came_back()
    assert (record.partition, record.key, record.value) == (1, b"key", CREATED)
    assert record.headers == (("trace", b"7"), ("redrive-attempt", b"1"), ("replay", b"redrive"))
    assert record.timestamp >= before * 1000 - 1
    for _ in range(2):
        assert (await place.redrive())["sent"] == []
    assert len(await place.came_back()) == 1
    assert (await place.shown()) == {"open": 0, "by_reason": {}, "redriven": 1, "foreign": 0, "letters": []}


async def test_filters_limit_and_what_is_left(place: Place) -> None:
    for number in range(4):
        await place.bury(number, DeadLetterReason.REJECTED, key=b"%d" % number)
    await place.bury(4, DeadLetterReason.UNDECODABLE, b"\xff")

    listed = await place.shown(limit=2)
    assert listed["by_reason"] == {"rejected": 4, "undecodable": 1}
    assert [letter["topic_offset"] for letter in listed["letters"]] == [3, 4]
    assert (await place.shown(Filter(event_types=["issue.comment.created"])))["open"] == 4
    assert (await place.shown(Filter(until=time.time() - 3600)))["open"] == 0

    await place.redrive(Filter(reasons=["rejected"]), limit=3)
    assert sorted(dict(record.headers)["trace"] for record in await place.came_back()) == [b"0", b"1", b"2"]
    left = await place.shown()
    assert [letter["reason"] for letter in left["letters"]] == ["rejected", "undecodable"]
    assert left["redriven"] == 3
    await place.redrive()
    assert len(await place.came_back()) == 5


async def test_forced_each_has_a_repair_of_its_own(place: Place) -> None:
    for number in range(2):
        await place.bury(number, DeadLetterReason.ATTEMPTS_EXHAUSTED)
    await place.redrive(force=True)
    repairs = [dict(record.headers)["repair"] for record in await place.came_back()]
    assert len(set(repairs)) == 2


@pytest.mark.real_kafka  # the other broker does not heed a topic's limit
async def test_the_tables_and_a_letter_that_was_cut(
    place: Place, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = await topics.create("small", config={"max.message.bytes": "2000"})
    place.settings = place.settings.model_copy(update={"topic_dead_letters": dead})
    await place.bury(1, DeadLetterReason.REJECTED, CREATED + b" " * 4000)
    await place.bury(2, DeadLetterReason.REJECTED)

    assert await dead_letters.list_letters(place.settings, EVERYTHING, 50, as_json=False) == 0
    listed = capsys.readouterr().out
    assert "rejected (cut)" in listed
    assert "2 open: 2 rejected" in listed
    assert "café" not in listed
    for dry_run in (True, False):
        code = await dead_letters.redrive_letters(
            place.settings, EVERYTHING, None, dry_run=dry_run, force=False, as_json=False
        )
        assert code == 0
        said = capsys.readouterr().out
        assert "not sent: the last" in said
        assert f"1 {'would be ' if dry_run else ''}sent back" in said
    assert len(await place.came_back()) == 1


async def test_what_the_operator_reads_when_nothing_is_there(
    place: Place, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = place.settings.model_copy(update={"topic_dead_letters": topics.name("missing")})
    assert await dead_letters.list_letters(missing, EVERYTHING, 50, as_json=False) == 1
    assert f"Kafka has no topic {missing.topic_dead_letters}: run `paperclip-memory topics`" in capsys.readouterr().err
    away = place.settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"})
    run = dead_letters.redrive_letters(away, EVERYTHING, None, dry_run=False, force=False, as_json=False)
    assert await asyncio.wait_for(run, 60) == 1
    assert "✗ Kafka at 127.0.0.1:1" in capsys.readouterr().err


async def test_what_a_worker_buries_it_handles_after_the_redrive(
    topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(_body: dict[str, Any]) -> int:
        return 422

    (version,) = versions(1, seeded_rng(1, "redrive"))
    async with ScriptedHindsight(refuse) as hindsight:
        of = await lanes.settings(topics, hindsight.url)
        place = Place(of, capsys)
        async with lanes.lane(of, "retain") as running:
            await lanes.publish(of, of.topic_issue_comments, [(version.key, version.value, [])])
            await until(lambda: len(running.finished()) == 1)
            await place.redrive()
            await until(lambda: len(running.finished()) == 2)  # refused again: a new letter
            (letter,) = (await place.shown())["letters"]
            assert (letter["reason"], letter["redrives"]) == ("rejected", 1)
            hindsight.answer = accept
            await place.redrive(force=True)
            await until(lambda: len(running.finished()) == 3)
    assert [each.outcome for each in running.finished()] == [
        AttemptOutcome.DEAD_LETTERED,
        AttemptOutcome.DEAD_LETTERED,
        AttemptOutcome.SUCCEEDED,
    ]
    sent = [body["operation_id"] for body in hindsight.retains]
    assert sent[0] == sent[1] == version.operation
    assert sent[2] != version.operation
    assert (await place.shown())["open"] == 0
