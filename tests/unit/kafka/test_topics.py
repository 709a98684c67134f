from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource
from aiokafka.errors import KafkaConnectionError

from consumer.errors import DownKind, Upstream, UpstreamDown
from consumer.kafka.topics import (
    DEFAULT_LIMIT,
    TopicReport,
    TopicSpec,
    TopicState,
    compare,
    ensure,
    survey,
    survey_topics,
    topic_specs,
)
from consumer.settings.model import Settings

RUNS, COMMENTS, RECALLS = "paperclip.agent.runs", "paperclip.issue.comments", "paperclip.memory.recalls"
CHECKPOINTS, DEAD_LETTERS = "paperclip.memory.relay-checkpoints", "paperclip.memory.dead-letters"
ALL = [RUNS, COMMENTS, RECALLS, CHECKPOINTS, DEAD_LETTERS]
DAY = 86_400_000


def settings(**fields: Any) -> Settings:
    return Settings(hindsight_api_url="http://localhost:8888", **fields)


class Kafka:
    """A broker's administration, as far as it is asked. New topics show in its metadata only after `lag` looks."""

    def __init__(self, *, tells: bool = True, limit: int = DEFAULT_LIMIT, lag: int = 0) -> None:
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.replicas: dict[str, int] = {}
        self.refusals: dict[str, tuple[int, str | None]] = {}
        self.hidden: set[str] = set()
        self.tells = tells
        self.limit = limit
        self.lag = lag
        self.looks: dict[str, int] = {}

    def add(self, name: str, partitions: int = 8, **configs: str) -> None:
        self.topics[name] = partitions, {key.replace("_", "."): value for key, value in configs.items()}

    async def describe_topics(self) -> list[Any]:
        shown = []
        for name, (partitions, _) in self.topics.items():
            self.looks[name] = self.looks.get(name, self.lag) - 1
            if self.looks[name] < 0:
                shown.append({"topic": name, "partitions": [{}] * partitions})
        return shown

    async def describe_configs(self, config_resources: list[ConfigResource]) -> list[Any]:
        if not self.tells:
            raise KafkaConnectionError("closed")
        rows = []
        for resource in config_resources:
            defaults = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY), "max.message.bytes": str(self.limit)}
            code = 3 if resource.name not in self.topics else 29 if resource.name in self.hidden else 0
            configs = {} if code else defaults | self.topics[resource.name][1]
            entries: list[Any] = [(key, value, False, 5, False, []) for key, value in configs.items()]
            rows.append((code, "", 2, resource.name, entries))
        return [SimpleNamespace(resources=rows)]

    async def create_topics(self, new_topics: list[NewTopic]) -> Any:
        errors = []
        for topic in new_topics:
            code, message = self.refusals.get(topic.name, (0, None))
            if code == 0:
                self.topics[topic.name] = topic.num_partitions, dict(topic.topic_configs)
                self.replicas[topic.name] = topic.replication_factor
            errors.append((topic.name, code, message))
        return SimpleNamespace(topic_errors=errors)


def states(reports: list[TopicReport]) -> dict[str, TopicState]:
    return {report.name: report.state for report in reports}


def test_topics_and_their_default_configuration() -> None:
    assert {spec.name: dict(spec.configs) for spec in topic_specs(settings(), 2_000_000)} == {
        RUNS: {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)},
        COMMENTS: {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)},
        RECALLS: {"cleanup.policy": "compact,delete", "retention.ms": str(2 * DAY), "segment.ms": "3600000"},
        CHECKPOINTS: {"cleanup.policy": "compact"},
        DEAD_LETTERS: {
            "cleanup.policy": "delete",
            "retention.ms": str(14 * DAY),
            "max.message.bytes": str(2_000_000 + 65_536),
        },
    }
    assert {spec.partitions for spec in topic_specs(settings())} == {8}


def test_topic_names_and_partitions_come_from_the_settings() -> None:
    specs = topic_specs(settings(topic_recalls="recalls", topic_partitions=3))
    assert [spec.name for spec in specs] == [RUNS, COMMENTS, "recalls", CHECKPOINTS, DEAD_LETTERS]
    assert {spec.partitions for spec in specs} == {3}


UNREPORTED = "the broker does not report its configuration"
SPEC = TopicSpec(
    "t", 8, {"cleanup.policy": "compact,delete", "retention.ms": "1000", "segment.ms": "100", "max.message.bytes": "50"}
)
FITS = {"cleanup.policy": "compact,delete", "retention.ms": "1000", "segment.ms": "100", "max.message.bytes": "50"}


@pytest.mark.parametrize(
    ("partitions", "configs", "details"),
    [
        (8, {}, ()),
        (24, {}, ()),
        (7, {}, ("7 partitions, not 8",)),
        (8, {"cleanup.policy": "delete, compact"}, ()),
        (8, {"cleanup.policy": "delete"}, ("cleanup.policy is delete, not compact,delete",)),
        (8, {"retention.ms": "1001"}, ()),
        (8, {"retention.ms": "-1"}, ()),
        (8, {"retention.ms": "999"}, ("retention.ms is 999, not 1000",)),
        (8, {"segment.ms": "99"}, ()),
        (8, {"segment.ms": "101"}, ("segment.ms is 101, not 100",)),
        (8, {"max.message.bytes": "51"}, ()),
        (8, {"max.message.bytes": "49"}, ("max.message.bytes is 49, not 50",)),
        (1, {"max.message.bytes": "-1"}, ("1 partitions, not 8", "max.message.bytes is -1, not 50")),
    ],
)
def test_topic_differs_if_it_holds_less_than_required(
    partitions: int, configs: dict[str, str], details: tuple[str, ...]
) -> None:
    state = TopicState.DIFFERS if details else TopicState.EXISTS
    assert compare(SPEC, partitions, FITS | configs) == TopicReport("t", state, details)


@pytest.mark.parametrize("configs", [None, {}])
def test_unreported_configuration_is_noted(configs: dict[str, str] | None) -> None:
    assert compare(SPEC, 8, configs) == TopicReport("t", TopicState.EXISTS, (UNREPORTED,))
    assert compare(SPEC, 1, configs) == TopicReport("t", TopicState.DIFFERS, ("1 partitions, not 8",))


def test_partially_reported_configuration_is_compared() -> None:
    report = compare(SPEC, 8, {"cleanup.policy": "delete"})
    assert report.details == ("cleanup.policy is delete, not compact,delete",)


async def test_missing_topics_are_created_once() -> None:
    kafka = Kafka()
    assert states(await ensure(kafka, settings())) == dict.fromkeys(ALL, TopicState.CREATED)
    assert {name: partitions for name, (partitions, _) in kafka.topics.items()} == dict.fromkeys(ALL, 8)
    before = dict(kafka.topics)
    assert states(await ensure(kafka, settings())) == dict.fromkeys(ALL, TopicState.EXISTS)
    assert kafka.topics == before


async def test_creation_waits_until_the_topics_are_visible() -> None:
    kafka = Kafka(lag=2)
    assert states(await ensure(kafka, settings())) == dict.fromkeys(ALL, TopicState.CREATED)
    assert states(await survey(kafka, settings())) == dict.fromkeys(ALL, TopicState.EXISTS)


async def test_dead_letters_have_room_for_the_largest_source_record() -> None:
    kafka = Kafka(limit=5_000_000)
    await ensure(kafka, settings())
    assert kafka.topics[DEAD_LETTERS][1]["max.message.bytes"] == str(5_000_000 + 65_536)


async def test_dead_letters_have_room_if_a_source_existed_before() -> None:
    kafka = Kafka()
    kafka.add(COMMENTS, max_message_bytes="9000000")
    await ensure(kafka, settings())
    assert kafka.topics[DEAD_LETTERS][1]["max.message.bytes"] == str(9_000_000 + 65_536)


async def test_dead_letters_without_room_differ() -> None:
    kafka = Kafka()
    await ensure(kafka, settings())
    kafka.topics[COMMENTS][1]["max.message.bytes"] = "9000000"
    reports = {report.name: report for report in await survey(kafka, settings())}
    assert reports[DEAD_LETTERS].state is TopicState.DIFFERS
    assert reports[DEAD_LETTERS].details == (f"max.message.bytes is {DEFAULT_LIMIT + 65_536}, not 9065536",)


@pytest.mark.parametrize(("setting", "factor"), [(None, -1), (3, 3)])
async def test_replicas_are_the_brokers_default_unless_set(setting: int | None, factor: int) -> None:
    kafka = Kafka()
    await ensure(kafka, settings(topic_replication_factor=setting))
    assert kafka.replicas == dict.fromkeys(ALL, factor)


async def test_existing_topics_are_not_changed() -> None:
    kafka = Kafka()
    kafka.add(RECALLS, partitions=2, cleanup_policy="delete")
    reports = {report.name: report for report in await ensure(kafka, settings())}
    assert reports[RECALLS].state is TopicState.DIFFERS
    assert reports[RECALLS].details == ("2 partitions, not 8", "cleanup.policy is delete, not compact,delete")
    assert kafka.topics[RECALLS] == (2, {"cleanup.policy": "delete"})
    assert reports[RUNS].state is TopicState.CREATED


async def test_refusal_is_reported_with_kafkas_reason_and_others_are_created() -> None:
    kafka = Kafka()
    kafka.refusals = {RUNS: (38, "only 1 broker"), DEAD_LETTERS: (29, None)}
    reports = {report.name: report for report in await ensure(kafka, settings())}
    assert reports[RUNS].state is reports[DEAD_LETTERS].state is TopicState.REFUSED
    assert reports[RUNS].details == ("InvalidReplicationFactorError: only 1 broker",)
    assert reports[DEAD_LETTERS].details[0].startswith("TopicAuthorizationFailedError: ")
    assert reports[COMMENTS].state is TopicState.CREATED


async def test_topic_created_concurrently_exists() -> None:
    kafka = Kafka()
    kafka.refusals = {RUNS: (36, "already exists")}
    reports = {report.name: report for report in await ensure(kafka, settings())}
    assert reports[RUNS] == TopicReport(RUNS, TopicState.EXISTS, ("created concurrently",))


async def test_survey_creates_no_topic() -> None:
    kafka = Kafka()
    assert states(await survey(kafka, settings())) == dict.fromkeys(ALL, TopicState.MISSING)
    assert kafka.topics == {}


async def test_broker_without_configurations_is_accepted() -> None:
    kafka = Kafka(tells=False)
    assert states(await ensure(kafka, settings())) == dict.fromkeys(ALL, TopicState.CREATED)
    assert kafka.topics[DEAD_LETTERS][1]["max.message.bytes"] == str(DEFAULT_LIMIT + 65_536)
    assert {report.details for report in await survey(kafka, settings())} == {(UNREPORTED,)}


async def test_configuration_without_permission_is_noted() -> None:
    kafka = Kafka()
    await ensure(kafka, settings())
    kafka.hidden = {RECALLS}
    reports = {report.name: report for report in await survey(kafka, settings())}
    assert reports[RECALLS].details == (UNREPORTED,)
    assert reports[RUNS].details == ()


async def test_unreachable_broker_is_upstream_down_with_the_reason() -> None:
    with pytest.raises(UpstreamDown) as caught:
        await survey_topics(settings(kafka_bootstrap_servers="127.0.0.1:1"))
    assert (caught.value.upstream, caught.value.kind) == (Upstream.KAFKA, DownKind.UNREACHABLE)
    assert str(caught.value).startswith("Kafka at 127.0.0.1:1: ")
    assert "Connect call failed" in str(caught.value)
