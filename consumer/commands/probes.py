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
"""The version of Hindsight since which a repeated `operation_id` creates no second operation."""


class Hindsight(Protocol):
    """The part of `HindsightClient` that is probed. Each method raises from `consumer.errors`."""

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
    """Probe all services concurrently. `paperclip` is None if Paperclip is not configured."""
    results = await asyncio.gather(
        probe_kafka(settings, survey),
        probe_hindsight(settings, hindsight),
        probe_paperclip(settings, paperclip),
    )
    return [Probe("settings", Mark.OK, "complete"), *(probe for probes in results for probe in probes)]


def settings_probes(error: SettingsError) -> list[Probe]:
    """The probes for wrong settings, without which nothing else can be probed."""
    return [Probe("settings", Mark.FAILED, problem) for problem in error.problems]


async def probe_kafka(settings: Settings, survey: Survey) -> list[Probe]:
    """Whether Kafka answers, and whether the topics are as required."""
    try:
        reports = await survey(settings)
    except UpstreamDown as error:
        fix = f"start Kafka there, or correct {label('kafka_bootstrap_servers')} and the kafka_* settings beside it"
        return [Probe("kafka", Mark.FAILED, str(error), fix)]
    answers = Probe("kafka", Mark.OK, f"{settings.kafka_bootstrap_servers} answers")
    deviating = [_topic(report) for report in reports if report.state is not TopicState.EXISTS]
    return [answers, *(deviating or [Probe("topics", Mark.OK, f"all {len(reports)} exist")])]


def _topic(report: TopicReport) -> Probe:
    name = f"topic {report.name}"
    if report.state is TopicState.MISSING:
        return Probe(name, Mark.FAILED, "does not exist", "run `paperclip-memory topics`; `up` does so by itself")
    fix = "alter the topic with Kafka's own tools (kafka-topics, kafka-configs), or leave it if intended"
    return Probe(name, Mark.WARNED, "; ".join(report.details), fix)


async def probe_hindsight(settings: Settings, hindsight: Hindsight) -> list[Probe]:
    """Whether Hindsight is up and accepts our key, which its health check does not require."""
    try:
        await hindsight.health()
        may_see_probe_bank = await hindsight.authenticate()
    except HandlingError as error:
        return [failed("hindsight", settings.hindsight_api_key, error)]
    if not may_see_probe_bank:
        text = f"{settings.hindsight_api_url} answers, but the key may not read the bank that `check` uses (403)"
        fix = "nothing if the key is limited to your agents' banks; otherwise set a key that may read them"
        return [Probe("hindsight", Mark.WARNED, text, fix)]
    text = f"{settings.hindsight_api_url} answers and {accepts(settings.hindsight_api_key)}"
    try:
        version = await hindsight.version()
    except HandlingError:  # old versions do not report it
        version = "unknown"
    since = ".".join(map(str, NOOP_SINCE))
    if numbers(version) < NOOP_SINCE:
        text += f"; version {version}: before {since} Hindsight processes a repeated comment again"
        return [Probe("hindsight", Mark.WARNED, text, f"upgrade Hindsight to {since} or newer")]
    return [Probe("hindsight", Mark.OK, f"{text}; version {version}")]
