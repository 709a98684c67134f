"""The exporter's reader when only a part of Kafka answers; the rest is tested on real Kafka."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupLoadInProgressError, LeaderNotAvailableError

from consumer.exporter import kafka_source
from consumer.exporter.kafka_source import KafkaReader
from consumer.exporter.snapshot import KafkaSnapshot
from consumer.settings.model import Settings
from consumer.stream.records import Partition

SETTINGS = Settings(
    hindsight_api_url="http://h",
    topic_agent_runs="runs",
    topic_issue_comments="comments",
    topic_dead_letters="dead",
    group_recall="recall",
    group_retain="retain",
)


class Kafka:
    """Two partitions of comments, one of each other topic; `leaderless` partitions and `failing` groups fail."""

    def __init__(self) -> None:
        self.leaderless: set[TopicPartition] = set()
        self.failing: set[str] = set()
        self.hangs = False
        self.sizes = {"runs": 1, "comments": 2, "dead": 1}

    # The admin client

    async def describe_topics(self) -> list[dict[str, Any]]:
        return [
            {"topic": topic, "error_code": 0, "partitions": [{"partition": number} for number in range(size)]}
            for topic, size in self.sizes.items()
        ]

    async def find_coordinator(self, group: str) -> str:
        if group in self.failing:
            if self.hangs:
                raise GroupLoadInProgressError
            raise LeaderNotAvailableError(f"no coordinator of {group}")
        return group

    async def _send_request(self, _request: object, group: str) -> Any:
        return SimpleNamespace(error_code=0, topics=[("comments", [(0, 3, "", 0), (1, 4, None, 0)])])

    async def describe_consumer_groups(self, _groups: list[str]) -> list[Any]:
        description = {"error_code": 0, "members": ["m"], "state": "Stable"}
        return [SimpleNamespace(to_object=lambda: {"groups": [description]})]

    # The consumer

    async def beginning_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.leaderless & set(tps):
            if self.hangs:
                await asyncio.Event().wait()
            raise LeaderNotAvailableError(f"no leader of {tps}")
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 10)

    def assign(self, _tps: object) -> None: ...

    def seek(self, *_: object) -> None: ...

    def unsubscribe(self) -> None: ...

    async def getmany(self, *tps: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        if self.hangs:
            await asyncio.sleep(0.01)
            return {}
        return {tp: [SimpleNamespace(timestamp=1_796_034_000_000)] for tp in tps}

    async def position(self, _tp: TopicPartition) -> int:
        return 0


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


async def read(kafka: Kafka, warnings: list[str]) -> KafkaSnapshot:
    reader = KafkaReader(SETTINGS, lambda _event, missing, error: warnings.append(f"{missing}: {error}"))
    clients: Any = SimpleNamespace(admin=kafka, consumer=kafka)
    return await reader._read(clients)


def lags(snapshot: KafkaSnapshot) -> dict[str, dict[Partition, int]]:
    return {group.name: {lag.partition: lag.records for lag in group.lags} for group in snapshot.groups}


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_partition_without_a_leader_hides_no_other_and_is_named(
    kafka: Kafka, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "PART_TIMEOUT", 0.05)
    kafka.leaderless, kafka.hangs = {TopicPartition("comments", 1)}, hangs
    warnings: list[str] = []
    snapshot = await read(kafka, warnings)
    assert lags(snapshot) == {"recall": {Partition("runs", 0): 10}, "retain": {Partition("comments", 0): 7}}
    assert list(snapshot.missing) == ["comments[1]"]
    assert [line.split(":")[0] for line in warnings] == ["comments[1]"]
    assert snapshot.dead_letters == {"dead": 10}


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_group_without_a_coordinator_hides_no_other_and_is_named(
    kafka: Kafka, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "PART_TIMEOUT", 0.05)
    kafka.failing, kafka.hangs = {"recall"}, hangs
    snapshot = await read(kafka, [])
    assert lags(snapshot) == {"retain": {Partition("comments", 0): 7, Partition("comments", 1): 6}}
    assert list(snapshot.missing) == ["group recall"]


async def test_the_dead_letter_topic_without_a_leader_hides_nothing(kafka: Kafka) -> None:
    kafka.leaderless = {TopicPartition("dead", 0)}
    snapshot = await read(kafka, [])
    assert set(lags(snapshot)) == {"recall", "retain"}
    assert list(snapshot.missing) == ["dead[0]"]
    assert snapshot.dead_letters == {}, "its depth is unknown, not 0"


async def test_a_kafka_that_answers_nothing_is_unavailable(kafka: Kafka) -> None:
    kafka.leaderless = {TopicPartition("runs", 0), TopicPartition("comments", 0), TopicPartition("comments", 1)}
    with pytest.raises(Exception, match="no partition answered"):
        await read(kafka, [])
    kafka.leaderless, kafka.failing = set(), {"recall", "retain"}
    with pytest.raises(LeaderNotAvailableError):
        await read(kafka, [])
