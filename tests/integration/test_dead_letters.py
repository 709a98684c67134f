"""`dead-letters list` and `redrive`, on a broker, with dead letters as the engine writes them."""

import asyncio
import json
import time
from functools import partial
from typing import Any

import pytest
from aiokafka import ConsumerRecord

from consumer.commands import dead_letters
from consumer.dead_letters.model import DeadLetterFilter
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

ALL = DeadLetterFilter()
CREATED = json.dumps({"eventType": "issue.comment.created", "body": "caf\\ud83d"}).encode()


class DeadLetterCommands:
    """The topics of one test, and the commands on them."""

    def __init__(self, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings = settings
        self._capsys = capsys

    async def write(self, number: int, reason: DeadLetterReason, value: bytes = CREATED, key: bytes = b"key") -> None:
        """Write a dead letter as the engine does."""
        publisher = Publisher(partial(producer, self.settings))
        headers = (("trace", b"%d" % number), ("replay", b"backfill"))
        item = WorkItem(
            Record(self.settings.topic_issue_comments, 1, number, 1_700_000_000_000, key, value, headers), 1
        )
        item.dead_letter_reason, item.error, item.attempts = reason, "Hindsight answered 422", 1
        await write_dead_letter(item, self.settings.topic_dead_letters, publisher.publish, RecordTooLarge)
        await publisher.close()

    async def listed(self, letter_filter: DeadLetterFilter = ALL, limit: int = 50) -> Any:
        assert await dead_letters.list_dead_letters(self.settings, letter_filter, limit, as_json=True) == 0
        return json.loads(self._capsys.readouterr().out)

    async def redrive(
        self,
        letter_filter: DeadLetterFilter = ALL,
        limit: int | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
    ) -> Any:
        run = dead_letters.redrive_dead_letters(
            self.settings, letter_filter, limit, dry_run=dry_run, force=force, as_json=True
        )
        assert await run == 0
        return json.loads(self._capsys.readouterr().out)

    async def sent_back(self) -> list[ConsumerRecord[bytes, bytes]]:
        """The records of the source topic."""
        return await read_all(self.settings, self.settings.topic_issue_comments)


@pytest.fixture
async def commands(topics: Topics, capsys: pytest.CaptureFixture[str]) -> DeadLetterCommands:
    settings = Settings(
        hindsight_api_url="http://localhost:1",
        kafka_bootstrap_servers=topics.broker.bootstrap_servers,
        kafka_enable_idempotence=topics.broker.idempotence,
        topic_agent_runs=await topics.create("runs"),
        topic_issue_comments=await topics.create("comments", partitions=3),
        topic_dead_letters=await topics.create("dead", partitions=2),
    )
    return DeadLetterCommands(settings, capsys)


async def test_redrive_sends_a_dead_letter_back_unchanged_and_once(commands: DeadLetterCommands) -> None:
    await commands.write(7, DeadLetterReason.REJECTED)
    before = time.time()

    assert (await commands.redrive(dry_run=True))["chosen"] == 1
    assert await commands.sent_back() == []
    done = await commands.redrive()
    assert len(done["sent"]) == 1

    (record,) = await commands.sent_back()
    assert (record.partition, record.key, record.value) == (1, b"key", CREATED)
    assert record.headers == (("trace", b"7"), ("redrive-attempt", b"1"), ("replay", b"redrive"))
    assert record.timestamp >= before * 1000 - 1
    for _ in range(2):
        assert (await commands.redrive())["sent"] == []
    assert len(await commands.sent_back()) == 1
    assert (await commands.listed()) == {"open": 0, "by_reason": {}, "redriven": 1, "foreign": 0, "dead_letters": []}


async def test_filter_and_limit_leave_the_other_dead_letters_open(commands: DeadLetterCommands) -> None:
    for number in range(4):
        await commands.write(number, DeadLetterReason.REJECTED, key=b"%d" % number)
    await commands.write(4, DeadLetterReason.UNDECODABLE, b"\xff")

    listed = await commands.listed(limit=2)
    assert listed["by_reason"] == {"rejected": 4, "undecodable": 1}
    assert [letter["topic_offset"] for letter in listed["dead_letters"]] == [3, 4]
    assert (await commands.listed(DeadLetterFilter(event_types=["issue.comment.created"])))["open"] == 4
    assert (await commands.listed(DeadLetterFilter(until=time.time() - 3600)))["open"] == 0

    await commands.redrive(DeadLetterFilter(reasons=["rejected"]), limit=3)
    assert sorted(dict(record.headers)["trace"] for record in await commands.sent_back()) == [b"0", b"1", b"2"]
    left = await commands.listed()
    assert [letter["reason"] for letter in left["dead_letters"]] == ["rejected", "undecodable"]
    assert left["redriven"] == 3
    await commands.redrive()
    assert len(await commands.sent_back()) == 5


async def test_forced_redrive_gives_each_record_its_own_repair(commands: DeadLetterCommands) -> None:
    for number in range(2):
        await commands.write(number, DeadLetterReason.ATTEMPTS_EXHAUSTED)
    await commands.redrive(force=True)
    repairs = [dict(record.headers)["repair"] for record in await commands.sent_back()]
    assert len(set(repairs)) == 2


@pytest.mark.real_kafka  # the other broker does not heed a topic's limit
async def test_truncated_dead_letter_is_listed_and_not_sent_back(
    commands: DeadLetterCommands, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = await topics.create("small", config={"max.message.bytes": "2000"})
    commands.settings = commands.settings.model_copy(update={"topic_dead_letters": dead})
    await commands.write(1, DeadLetterReason.REJECTED, CREATED + b" " * 4000)
    await commands.write(2, DeadLetterReason.REJECTED)

    assert await dead_letters.list_dead_letters(commands.settings, ALL, 50, as_json=False) == 0
    listed = capsys.readouterr().out
    assert "rejected (truncated)" in listed
    assert "2 open: 2 rejected" in listed
    assert "café" not in listed
    for dry_run in (True, False):
        code = await dead_letters.redrive_dead_letters(
            commands.settings, ALL, None, dry_run=dry_run, force=False, as_json=False
        )
        assert code == 0
        output = capsys.readouterr().out
        assert "not sent: the last" in output
        assert f"1 {'would be ' if dry_run else ''}sent back" in output
    assert len(await commands.sent_back()) == 1


async def test_missing_topic_and_unreachable_kafka_are_errors_that_say_so(
    commands: DeadLetterCommands, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = commands.settings.model_copy(update={"topic_dead_letters": topics.name("missing")})
    assert await dead_letters.list_dead_letters(missing, ALL, 50, as_json=False) == 1
    assert f"Kafka has no topic {missing.topic_dead_letters}: run `paperclip-memory topics`" in capsys.readouterr().err
    away = commands.settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"})
    run = dead_letters.redrive_dead_letters(away, ALL, None, dry_run=False, force=False, as_json=False)
    assert await asyncio.wait_for(run, 60) == 1
    assert "✗ Kafka at 127.0.0.1:1" in capsys.readouterr().err


async def test_worker_handles_its_dead_letter_after_a_forced_redrive(
    topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(_body: dict[str, Any]) -> int:
        return 422

    (version,) = versions(1, seeded_rng(1, "redrive"))
    async with ScriptedHindsight(refuse) as hindsight:
        of = await lanes.settings(topics, hindsight.url)
        commands = DeadLetterCommands(of, capsys)
        async with lanes.lane(of, "retain") as running:
            await lanes.publish(of, of.topic_issue_comments, [(version.key, version.value, [])])
            await until(lambda: len(running.finished()) == 1)
            await commands.redrive()
            await until(lambda: len(running.finished()) == 2)  # refused again: a new dead letter
            (letter,) = (await commands.listed())["dead_letters"]
            assert (letter["reason"], letter["redrives"]) == ("rejected", 1)
            hindsight.answer = accept
            await commands.redrive(force=True)
            await until(lambda: len(running.finished()) == 3)
    assert [attempt.outcome for attempt in running.finished()] == [
        AttemptOutcome.DEAD_LETTERED,
        AttemptOutcome.DEAD_LETTERED,
        AttemptOutcome.SUCCEEDED,
    ]
    sent = [body["operation_id"] for body in hindsight.retains]
    assert sent[0] == sent[1] == version.operation
    assert sent[2] != version.operation
    assert (await commands.listed())["open"] == 0
