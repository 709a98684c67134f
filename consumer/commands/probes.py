"""Probes of what a process depends on: one line each, with what to do. `check` prints them, a worker logs them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from consumer.commands.paperclip_probes import Paperclip, probe_paperclip
from consumer.commands.probe import Mark, Probe, accepts, failed, numbers
from consumer.errors import HandlingError, SettingsError, UpstreamDown
from consumer.kafka.topics import TopicReport, TopicState, survey_topics
from consumer.settings.model import Settings
from consumer.settings.types import label

NOOP_SINCE = (0, 8, 6)
"""The version of Hindsight from which a repeated `operation_id` makes no second operation."""


class Hindsight(Protocol):
    """What is asked of Hindsight. Each method raises from `consumer.errors`."""

    async def health(self) -> object: ...

    async def version(self) -> str: ...

    async def authenticate(self) -> bool: ...


Survey = Callable[[Settings], Awaitable[list[TopicReport]]]


async def probe_all(
    settings: Settings,
    hindsight: Hindsight,
    paperclip: Paperclip | None,
    survey: Survey = survey_topics,
) -> list[Probe]:
    """Probe everything at once. `paperclip` is None when Paperclip is not configured."""
    found = await asyncio.gather(
        probe_kafka(settings, survey),
        probe_hindsight(settings, hindsight),
        probe_paperclip(settings, paperclip),
    )
    return [Probe("settings", Mark.OK, "complete"), *(probe for probes in found for probe in probes)]


def settings_probes(error: SettingsError) -> list[Probe]:
    """The probes when the settings are wrong: nothing else can be asked then."""
    return [Probe("settings", Mark.FAILED, problem) for problem in error.problems]


async def probe_kafka(settings: Settings, survey: Survey) -> list[Probe]:
    """Whether Kafka answers, and whether the topics are what they must be."""
    try:
        reports = await survey(settings)
    except UpstreamDown as error:
        fix = f"start Kafka there, or correct {label('kafka_bootstrap_servers')} and the kafka_* settings beside it"
        return [Probe("kafka", Mark.FAILED, str(error), fix)]
    answers = Probe("kafka", Mark.OK, f"{settings.kafka_bootstrap_servers} answers")
    wanting = [_topic(report) for report in reports if report.state is not TopicState.EXISTS]
    return [answers, *(wanting or [Probe("topics", Mark.OK, f"all {len(reports)} exist")])]


def _topic(report: TopicReport) -> Probe:
    name = f"topic {report.name}"
    if report.state is TopicState.MISSING:
        return Probe(name, Mark.FAILED, "does not exist", "run `paperclip-memory topics`; `up` does so by itself")
    fix = "alter the topic with Kafka's own tools (kafka-topics, kafka-configs), or leave it if that is meant"
    return Probe(name, Mark.WARNED, "; ".join(report.details), fix)


async def probe_hindsight(settings: Settings, hindsight: Hindsight) -> list[Probe]:
    """Whether Hindsight is up, and takes our key; its health needs none."""
    try:
        await hindsight.health()
        may_see_probe_bank = await hindsight.authenticate()
    except HandlingError as error:
        return [failed("hindsight", settings.hindsight_api_key, error)]
    if not may_see_probe_bank:
        text = f"{settings.hindsight_api_url} answers, but our key may not see the bank that `check` asks for (403)"
        fix = "nothing if the key is limited to your agents' banks; else set one that may see them"
        return [Probe("hindsight", Mark.WARNED, text, fix)]
    text = f"{settings.hindsight_api_url} answers and {accepts(settings.hindsight_api_key)}"
    try:
        version = await hindsight.version()
    except HandlingError:  # old versions do not tell theirs
        version = "unknown"
    since = ".".join(map(str, NOOP_SINCE))
    if numbers(version) < NOOP_SINCE:
        text += f"; version {version}: before {since} a repeated comment is worked again"
        return [Probe("hindsight", Mark.WARNED, text, f"upgrade Hindsight to {since} or newer")]
    return [Probe("hindsight", Mark.OK, f"{text}; version {version}")]
