"""The topics: their required configuration, their state, their creation. Existing topics are not changed."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from consumer.kafka.options import client_options, translate_kafka_errors
from consumer.settings.model import Settings

HOUR = 3_600_000
DAY = 24 * HOUR
DEFAULT_LIMIT = 1_048_588
"""Bytes: Kafka's default `max.message.bytes`, for brokers that do not report theirs."""
DEAD_LETTER_ROOM = 64 * 1024
"""Bytes beyond the sources' limit for the headers, so that a record at the limit fits as a dead letter."""
TIMEOUT = 10.0


class TopicState(StrEnum):
    """The state of a topic."""

    CREATED = "created"
    EXISTS = "exists"
    DIFFERS = "differs"
    MISSING = "missing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The required configuration of a topic; `configs` by Kafka's names."""

    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The state of a topic. `details`: differences, the reason of a refusal, or what the broker does not report."""

    name: str
    state: TopicState
    details: tuple[str, ...] = ()


def topic_specs(settings: Settings, source_limit: int = DEFAULT_LIMIT) -> list[TopicSpec]:
    """All topics, the dead letters last: their size limit depends on the topics that lanes read.

    Args:
        source_limit: the largest `max.message.bytes` of the topics that lanes read.
    """
    weekly = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)}
    configs = {
        settings.topic_agent_runs: weekly,
        settings.topic_issue_comments: weekly,
        settings.topic_recalls: {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(48 * HOUR),
            "segment.ms": str(HOUR),  # retention removes whole segments; the default keeps far more than 48 h
        },
        settings.topic_relay_checkpoints: {"cleanup.policy": "compact"},
        settings.topic_dead_letters: {
            "cleanup.policy": "delete",
            "retention.ms": str(14 * DAY),
            "max.message.bytes": str(source_limit + DEAD_LETTER_ROOM),
        },
    }
    return [TopicSpec(name, settings.topic_partitions, config) for name, config in configs.items()]


def compare(spec: TopicSpec, partitions: int, configs: Mapping[str, str] | None) -> TopicReport:
    """Compare a topic with its spec. More partitions, a larger size limit or longer retention are accepted.

    Args:
        configs: as the broker reports them; None or empty if it does not.
    """
    differences = []
    if partitions < spec.partitions:
        differences.append(f"{partitions} partitions, not {spec.partitions}")
    if configs:
        differences += [
            f"{name} is {configs[name]}, not {required}"
            for name, required in spec.configs.items()
            if name in configs and not _fits(name, configs[name], required)
        ]
    if differences:
        return TopicReport(spec.name, TopicState.DIFFERS, tuple(differences))
    notes = ("the broker does not report its configuration",) if not configs else ()
    return TopicReport(spec.name, TopicState.EXISTS, notes)


def _fits(name: str, actual: str, required: str) -> bool:
    if name == "cleanup.policy":
        return {policy.strip() for policy in actual.split(",")} == set(required.split(","))
    if name == "segment.ms":
        return int(actual) <= int(required)
    return int(actual) >= int(required) or (name == "retention.ms" and int(actual) == -1)


class Admin(Protocol):
    """The part of `AIOKafkaAdminClient` that is used."""

    async def describe_topics(self) -> list[Any]: ...

    async def describe_configs(self, config_resources: list[ConfigResource]) -> list[Any]: ...

    async def create_topics(self, new_topics: list[NewTopic]) -> Any: ...


async def ensure_topics(settings: Settings) -> list[TopicReport]:
    """Create missing topics and report the state of all. Idempotent.

    Raises:
        UpstreamDown: Kafka cannot be reached, or refuses our credentials.
    """
    async with _open_admin(settings) as admin:
        return await ensure(admin, settings)


async def survey_topics(settings: Settings) -> list[TopicReport]:
    """Report the state of all topics; create none.

    Raises:
        UpstreamDown: Kafka cannot be reached, or refuses our credentials.
    """
    async with _open_admin(settings) as admin:
        return await survey(admin, settings)


async def ensure(admin: Admin, settings: Settings) -> list[TopicReport]:
    """`ensure_topics` over an open connection."""
    existing = await _partitions(admin)
    *early, late = topic_specs(settings)
    created = await _create(admin, settings, [spec for spec in early if spec.name not in existing])
    if late.name not in existing:  # its limit depends on topics that were created just now
        limit = _source_limit(settings, await _configs(admin, [spec.name for spec in early]))
        created |= await _create(admin, settings, topic_specs(settings, limit)[-1:])
    return [created.get(report.name, report) for report in await survey(admin, settings)]


async def survey(admin: Admin, settings: Settings) -> list[TopicReport]:
    """`survey_topics` over an open connection."""
    existing = await _partitions(admin)
    configs = await _configs(admin, [spec.name for spec in topic_specs(settings) if spec.name in existing])
    return [
        compare(spec, existing[spec.name], configs.get(spec.name))
        if spec.name in existing
        else TopicReport(spec.name, TopicState.MISSING)
        for spec in topic_specs(settings, _source_limit(settings, configs))
    ]


def _source_limit(settings: Settings, configs: Mapping[str, Mapping[str, str]]) -> int:
    sources = (settings.topic_agent_runs, settings.topic_issue_comments)
    return max(int(configs.get(name, {}).get("max.message.bytes", DEFAULT_LIMIT)) for name in sources)


async def _partitions(admin: Admin) -> dict[str, int]:
    # All topics, never by name: asking for a topic that does not exist makes brokers create it.
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


async def _configs(admin: Admin, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Topic configurations that the broker reports: Tansu only what it was given, Kafka none without permission."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    try:
        replies = await admin.describe_configs(resources)
    except KafkaError:
        return {}
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for code, _, _, name, entries in chain.from_iterable(reply.resources for reply in replies)
        if code == 0
    }


async def _create(admin: Admin, settings: Settings, specs: Iterable[TopicSpec]) -> dict[str, TopicReport]:
    topics = []
    for spec in specs:
        topic = NewTopic(spec.name, spec.partitions, 1, topic_configs=dict(spec.configs))
        topic.replication_factor = (
            settings.topic_replication_factor or -1
        )  # -1: the broker's default; the constructor refuses it
        topics.append(topic)
    if not topics:
        return {}
    reply = await admin.create_topics(topics)
    reports = {name: _creation(name, code, message) for name, code, message in reply.topic_errors}
    created = {name for name, report in reports.items() if report.state is TopicState.CREATED}
    async with asyncio.timeout(TIMEOUT):
        # Brokers learn of a new topic one by one.
        while not created <= (await _partitions(admin)).keys():  # noqa: ASYNC110 - only a broker knows when
            await asyncio.sleep(0.1)
    return reports


def _creation(name: str, code: int, message: str | None) -> TopicReport:
    if code == 0:
        return TopicReport(name, TopicState.CREATED)
    error = for_code(code)
    if error is TopicAlreadyExistsError:
        return TopicReport(name, TopicState.EXISTS, ("created concurrently",))
    return TopicReport(name, TopicState.REFUSED, (f"{error.__name__}: {message or error.description}",))


@asynccontextmanager
async def _open_admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**client_options(settings), request_timeout_ms=int(TIMEOUT * 1000))
    with translate_kafka_errors(settings):
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()
