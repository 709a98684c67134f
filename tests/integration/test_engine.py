"""What the stream engine promises of an outage, of a rebalance and of its end, with a real broker and real workers."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer.settings.model import Settings
from consumer.settings.types import variable
from consumer.stream.hooks import AttemptFinished, AttemptOutcome, BreakerChanged, Rebalanced, RebalanceKind
from demo.services import command, environment
from tests.chaos.events import Version, seeded_rng, versions
from tests.support import lanes
from tests.support.lanes import RunningLane
from tests.support.scripted import ScriptedHindsight, accept, until
from tests.support.topics import Topics, read_all

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(180)]

FULL_SPEED_WITHIN = 5.0


@pytest.fixture
async def hindsight() -> AsyncIterator[ScriptedHindsight]:
    async with ScriptedHindsight() as server:
        yield server


def events(count: int) -> list[Version]:
    return list(versions(count, seeded_rng(1, "engine")))


async def publish(of: Settings, produced: list[Version]) -> None:
    await lanes.publish(of, of.topic_issue_comments, [(each.key, each.value, []) for each in produced])


async def committed(of: Settings) -> dict[int, int]:
    """The committed offset of each partition; 0 for none."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=of.kafka_bootstrap_servers, group_id=of.group_retain, enable_auto_commit=False
    )
    partitions = [TopicPartition(of.topic_issue_comments, number) for number in range(8)]
    await consumer.start()
    try:
        consumer.assign(partitions)
        return {each.partition: await consumer.committed(each) or 0 for each in partitions}
    finally:
        await consumer.stop()


async def records(of: Settings) -> dict[int, list[bytes]]:
    """The values of each partition."""
    values: dict[int, list[bytes]] = {number: [] for number in range(8)}
    for record in await read_all(of, of.topic_issue_comments):
        values[record.partition].append(record.value or b"")
    return values


def operations(hindsight: ScriptedHindsight) -> set[str]:
    return {body["operation_id"] for body in hindsight.retains}


@pytest.mark.parametrize("how", ["refuses connections", "refuses our key", "answers 503", "breaks connections"])
async def test_a_sink_that_is_down(topics: Topics, hindsight: ScriptedHindsight, how: str) -> None:
    """No dead letters, no attempts spent, one probe at a time, and full speed soon after its return."""
    limit, produced = 16, events(400)
    of = await lanes.settings(topics, hindsight.url, retain_in_flight=limit, retry_max_delay=300, max_attempts=3)
    status = {"refuses our key": 401, "answers 503": 503, "breaks connections": 0}.get(how)
    up = asyncio.Event()

    async def answer(_body: dict[str, Any]) -> int:
        await asyncio.sleep(0.05)
        return 200 if up.is_set() or status is None else status

    hindsight.answer = answer
    if status is None:
        await hindsight.close()
    async with lanes.lane(of, "retain") as running:
        await publish(of, produced)
        await until(lambda: bool(running.lane.state().breakers) and running.lane.state().in_flight <= 1)
        opened, hindsight.most_running = len(running.attempts()), 0
        await until(lambda: len(running.attempts()) >= opened + 6)
        spans = running.spans()[opened:]
        assert all(began >= ended for (_, ended), (began, _) in pairwise(spans))
        assert hindsight.most_running == (0 if status is None else 1)
        probes = running.attempts()[opened:]
        assert len({probe.facts["comment_id"] for probe in probes}) > 1  # one poison record would not keep it closed

        up.set()
        if status is None:
            await hindsight.open()
        await until(lambda: running.lane.state().in_flight == limit, FULL_SPEED_WITHIN)
        await until(lambda: len(running.finished()) == len(produced))
    assert [each for each in running.attempts() if each.outcome is AttemptOutcome.DEAD_LETTERED] == []
    assert {each.attempts for each in running.finished()} == {0}  # two had spent one before it opened
    moves = [each.opened for each in running.signals if isinstance(each, BreakerChanged)]
    assert moves == [True, False]


async def test_a_revoke_with_slow_calls_in_flight(topics: Topics, hindsight: ScriptedHindsight) -> None:
    """It ends in its time, and the next owner repeats only what was not committed."""
    limit = 64
    of = await lanes.settings(topics, hindsight.url, retain_in_flight=limit, drain_timeout=1, http_timeout=60)
    produced = events(600)
    slow = asyncio.Event()

    async def answer(_body: dict[str, Any]) -> int:
        if slow.is_set():
            await asyncio.sleep(30)
        return 200

    hindsight.answer = answer
    await publish(of, produced[:300])
    async with lanes.lane(of, "retain") as first:
        await until(lambda: len(first.finished()) == 300)
        await lanes.all_committed(of, of.topic_issue_comments, of.group_retain)
        slow.set()
        before = await committed(of)
        await publish(of, produced[300:])
        await until(lambda: first.lane.state().in_flight == limit)
        hindsight.answer = accept
        async with lanes.lane(of, "retain") as second:
            await until(lambda: any(kind(first, RebalanceKind.REVOKED)))
            (revoked,) = kind(first, RebalanceKind.REVOKED)
            assert revoked.drained is False
            await until(lambda: len(done(first) | done(second)) == len(produced))
            await lanes.all_committed(of, of.topic_issue_comments, of.group_retain)
    assert 0 < len(done(second)) < len(produced)
    assert all(offset >= before[partition] for partition, offset in done(second))
    assert {each.operation for each in produced} == operations(hindsight)


def kind(running: RunningLane, wanted: RebalanceKind) -> list[Rebalanced]:
    """The rebalances of this kind in which something was held."""
    return [each for each in running.signals if isinstance(each, Rebalanced) and each.kind is wanted]


def done(running: RunningLane) -> set[tuple[int, int]]:
    """Partition and offset of all that is finished."""
    return {_place(each) for each in running.finished()}


def _place(attempt: AttemptFinished) -> tuple[int, int]:
    return int(attempt.facts["partition"]), int(attempt.facts["offset"])


@contextmanager
def worker(of: Settings, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker as users start it."""
    fields = of.model_dump(exclude_unset=True, mode="json")
    env = environment({}) | {variable(name): str(value) for name, value in fields.items()}
    with log.open("wb") as out:
        process = subprocess.Popen([command(), "worker", "--lane", "retain"], env=env, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_sigterm_commits_what_is_done_and_ends_in_time(
    topics: Topics, hindsight: ScriptedHindsight, tmp_path: Path
) -> None:
    of = await lanes.settings(topics, hindsight.url, drain_timeout=2, shutdown_timeout=10, http_timeout=60)
    produced = events(200)
    stuck = {each.comment for each in produced[:2]}
    operation_of = {each.value: each.operation for each in produced}
    answered: set[str] = set()

    async def answer(body: dict[str, Any]) -> int:
        """Two comments never end; the others that are under way do within the drain."""
        await asyncio.sleep(600 if body["items"][0]["document_id"] in stuck else 0.2)
        answered.add(body["operation_id"])
        return 200

    hindsight.answer = answer
    await publish(of, produced)
    with worker(of, tmp_path / "log") as process:
        await until(lambda: len(answered) > 50)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0
    offsets = await committed(of)
    for partition, values in (await records(of)).items():
        ends = [number for number, value in enumerate(values) if operation_of[value] not in answered]
        assert offsets[partition] == min(ends, default=len(values))

    hindsight.answer = accept
    async with lanes.lane(of, "retain") as running:
        await until(lambda: len(running.finished()) + sum(offsets.values()) == len(produced))
    assert all(offset >= offsets[partition] for partition, offset in done(running))
    assert {each.operation for each in produced} == operations(hindsight)


async def test_a_second_sigterm_ends_at_once(topics: Topics, hindsight: ScriptedHindsight, tmp_path: Path) -> None:
    of = await lanes.settings(topics, hindsight.url, drain_timeout=300, shutdown_timeout=400, http_timeout=600)
    hindsight.answer = lambda _body: asyncio.sleep(600, 200)
    await publish(of, events(10))
    log = tmp_path / "log"
    with worker(of, log) as process:
        await until(lambda: hindsight.running > 0)
        process.send_signal(signal.SIGTERM)
        await until(lambda: "stopping" in log.read_text())
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 130
