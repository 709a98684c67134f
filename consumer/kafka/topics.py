"""The topics: what each must be, what it is, and how it is made. None that exists is changed or deleted."""

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
"""Bytes: Kafka's default `max.message.bytes`, for brokers that do not say theirs."""
DEAD_LETTER_ROOM = 64 * 1024
"""Bytes over the sources' limit, for the headers that say why: a record at the limit still gets its dead letter."""
TIMEOUT = 10.0


class TopicState(StrEnum):
    """How a topic stands."""

    CREATED = "created"
    EXISTS = "exists"
    DIFFERS = "differs"
    MISSING = "missing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic must be; `configs` by Kafka's names."""

    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """How a topic stands; `details` say how it differs, why it was refused, or what the broker does not tell."""

    name: str
    state: TopicState
    details: tuple[str, ...] = ()


def topic_specs(settings: Settings, source_limit: int = DEFAULT_LIMIT) -> list[TopicSpec]:
    """All topics, the dead letters last: their limit follows from that of the topics they come from.

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
            "segment.ms": str(HOUR),  # retention bites by segment: without it a reader starts with far more than 48 h
        },
        settings.topic_relay_checkpoints: {"cleanup.policy": "compact"},
        settings.topic_dead_letters: {
            "cleanup.policy": "delete",
            "retention.ms": str(14 * DAY),
            "max.message.bytes": str(source_limit + DEAD_LETTER_ROOM),
        },
    }
    return [TopicSpec(name, settings.topic_partitions, each) for name, each in configs.items()]


def compare(spec: TopicSpec, partitions: int, configs: Mapping[str, str] | None) -> TopicReport:
    """Hold a topic that exists against what it must be. More partitions, room or retention than asked for is fine.

    Args:
        configs: what the broker says of it; None or empty when it does not.
    """
    differences = []
    if partitions < spec.partitions:
        differences.append(f"{partitions} partitions, not {spec.partitions}")
    if configs:
        differences += [
            f"{name} is {configs[name]}, not {wanted}"
            for name, wanted in spec.configs.items()
            if name in configs and not _fits(name, configs[name], wanted)
        ]
    if differences:
        return TopicReport(spec.name, TopicState.DIFFERS, tuple(differences))
    notes = ("the broker does not tell its policy",) if not configs else ()
    return TopicReport(spec.name, TopicState.EXISTS, notes)


def _fits(name: str, actual: str, wanted: str) -> bool:
    if name == "cleanup.policy":
        return {each.strip() for each in actual.split(",")} == set(wanted.split(","))
    if name == "segment.ms":
        return int(actual) <= int(wanted)
    return int(actual) >= int(wanted) or (name == "retention.ms" and int(actual) == -1)


class Admin(Protocol):
    """What is asked of Kafka's administration; `AIOKafkaAdminClient` answers it."""

    async def describe_topics(self) -> list[Any]: ...

    async def describe_configs(self, config_resources: list[ConfigResource]) -> list[Any]: ...

    async def create_topics(self, new_topics: list[NewTopic]) -> Any: ...


async def ensure_topics(settings: Settings) -> list[TopicReport]:
    """Create the topics that are missing, and say how the others stand. Doing it again is harmless.

    Raises:
        UpstreamDown: Kafka cannot be reached, or does not take us for who we are.
    """
    async with _open_admin(settings) as admin:
        return await ensure(admin, settings)


async def survey_topics(settings: Settings) -> list[TopicReport]:
    """Say how the topics stand; create nothing.

    Raises:
        UpstreamDown: Kafka cannot be reached, or does not take us for who we are.
    """
    async with _open_admin(settings) as admin:
        return await survey(admin, settings)


async def ensure(admin: Admin, settings: Settings) -> list[TopicReport]:
    """`ensure_topics` over an open connection."""
    there = await _partitions(admin)
    *early, late = topic_specs(settings)
    created = await _create(admin, settings, [spec for spec in early if spec.name not in there])
    if late.name not in there:  # its limit follows from topics that were made just now
        limit = _source_limit(settings, await _configs(admin, [spec.name for spec in early]))
        created |= await _create(admin, settings, topic_specs(settings, limit)[-1:])
    return [created.get(report.name, report) for report in await survey(admin, settings)]


async def survey(admin: Admin, settings: Settings) -> list[TopicReport]:
    """`survey_topics` over an open connection."""
    there = await _partitions(admin)
    configs = await _configs(admin, [spec.name for spec in topic_specs(settings) if spec.name in there])
    return [
        compare(spec, there[spec.name], configs.get(spec.name))
        if spec.name in there
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
    """Topic settings as far as the broker tells them: Tansu only what was asked for, Kafka none to who may not see."""
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
        topic.replication_factor = settings.topic_replication_factor or -1  # the broker's default; not so constructed
        topics.append(topic)
    if not topics:
        return {}
    reply = await admin.create_topics(topics)
    reports = {name: _creation(name, code, message) for name, code, message in reply.topic_errors}
    made = {name for name, report in reports.items() if report.state is TopicState.CREATED}
    async with asyncio.timeout(TIMEOUT):
        # Brokers learn of a new topic one after another.
        while not made <= (await _partitions(admin)).keys():  # noqa: ASYNC110 - only a broker knows when
            await asyncio.sleep(0.1)
    return reports


def _creation(name: str, code: int, message: str | None) -> TopicReport:
    if code == 0:
        return TopicReport(name, TopicState.CREATED)
    error = for_code(code)
    if error is TopicAlreadyExistsError:
        return TopicReport(name, TopicState.EXISTS, ("created by another just now",))
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
