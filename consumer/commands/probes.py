"""Probes of what a process depends on: one line each, with what to do. `check` prints them, a worker logs them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pydantic import SecretStr
from structlog.typing import FilteringBoundLogger

from consumer.errors import DownKind, HandlingError, Permanent, SettingsError, Transient, UpstreamDown
from consumer.kafka.topics import TopicReport, TopicState, survey_topics
from consumer.paperclip.models import Identity, Json, KeyKind, is_forbidden
from consumer.settings.model import Settings
from consumer.settings.plugin_import import PACKAGE, is_hindsight_plugin
from consumer.settings.types import label

NOOP_SINCE = (0, 8, 6)
"""The version of Hindsight from which a repeated `operation_id` makes no second operation."""
WITHOUT_PAPERCLIP = (
    "not configured: events must carry comment, issue and run, else comments are stored as their first 120 characters"
    " and queries lack the comments that woke a run; deletions reach only the bank of the event's own agent; replays"
    " cannot be verified"
)


WITHOUT_AUDIT = (
    "the relay finds deletions only by reading the comments of the last day again, and `audit` no cancelled comments"
)


class Mark(StrEnum):
    """How a probe ended."""

    OK = "ok"
    FAILED = "failed"
    WARNED = "warned"
    ABSENT = "absent"


_SIGNS = {Mark.OK: "✓", Mark.FAILED: "✗", Mark.WARNED: "!", Mark.ABSENT: "\N{EN DASH}"}


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found; `fix` is what to do about it, "" if nothing needs to be done."""

    name: str
    mark: Mark
    text: str
    fix: str = ""

    @property
    def line(self) -> str:
        """The probe as a line for people."""
        return f"{_SIGNS[self.mark]} {self.name}: {self.text}" + (f". To do: {self.fix}" if self.fix else "")


class Hindsight(Protocol):
    """What is asked of Hindsight. Each method raises from `consumer.errors`."""

    async def health(self) -> object: ...

    async def version(self) -> str: ...

    async def authenticate(self) -> object: ...


class Paperclip(Protocol):
    """What is asked of Paperclip. Each method raises from `consumer.errors`."""

    async def health(self) -> object: ...

    async def authenticate(self) -> Identity: ...

    async def can_read_audit_feed(self, company_id: str) -> bool: ...

    async def plugins(self) -> list[Json]: ...


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
        probe_following(paperclip),
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
        return Probe(name, Mark.FAILED, "does not exist", "run `paperclip-memory topics`")
    fix = "alter the topic with Kafka's own tools (kafka-topics, kafka-configs), or leave it if that is meant"
    return Probe(name, Mark.WARNED, "; ".join(report.details), fix)


async def probe_hindsight(settings: Settings, hindsight: Hindsight) -> list[Probe]:
    """Whether Hindsight is up, and takes our key; its health needs none."""
    try:
        await hindsight.health()
        await hindsight.authenticate()
    except HandlingError as error:
        return [_failed("hindsight", error)]
    text = f"{settings.hindsight_api_url} answers and {_accepts(settings.hindsight_api_key)}"
    try:
        version = await hindsight.version()
    except HandlingError:  # old versions do not tell theirs
        version = "unknown"
    since = ".".join(map(str, NOOP_SINCE))
    if _numbers(version) < NOOP_SINCE:
        text += f"; version {version}: before {since} a repeated comment is worked again"
        return [Probe("hindsight", Mark.WARNED, text, f"upgrade Hindsight to {since} or newer")]
    return [Probe("hindsight", Mark.OK, f"{text}; version {version}")]


async def probe_paperclip(settings: Settings, paperclip: Paperclip | None) -> list[Probe]:
    """Whether Paperclip is up, and takes our key; its health needs none."""
    if paperclip is None:
        return [Probe("paperclip", Mark.ABSENT, WITHOUT_PAPERCLIP, f"set {label('paperclip_api_url')}")]
    try:
        await paperclip.health()
        identity = await paperclip.authenticate()
    except HandlingError as error:
        return [_failed("paperclip", error)]
    text = f"{settings.paperclip_api_url} answers and {_accepts(settings.paperclip_api_key)}"
    if not identity.company_ids:
        return [Probe("paperclip", Mark.WARNED, f"{text}, but shows no company", "use a key that may see them")]
    whose = "an agent's" if identity.kind is KeyKind.AGENT else "a board member's"
    return [Probe("paperclip", Mark.OK, f"{text} as {whose}; companies: {len(identity.company_ids)}")]


async def probe_following(paperclip: Paperclip | None) -> list[Probe]:
    """What the relay and audit would miss with this key, and whether the plugin does the same work beside us.

    Nothing is said where Paperclip does not answer: its own probe says that.
    """
    if paperclip is None:
        return []
    try:
        companies = (await paperclip.authenticate()).company_ids
        allowed = await asyncio.gather(*(paperclip.can_read_audit_feed(company) for company in companies))
        plugins = await _plugins(paperclip)
    except HandlingError:
        return []
    found = []
    if not all(allowed):
        text = f"the key may not read it in {allowed.count(False)} of {len(allowed)} companies: {WITHOUT_AUDIT}"
        fix = "give its user the permission audit:view_agent_actions, or take a board member's key that has it"
        found.append(Probe("audit feed", Mark.WARNED, text, fix))
    if any(is_hindsight_plugin(each) and each.get("status") == "ready" for each in plugins):
        text = f"{PACKAGE} is enabled in Paperclip: what it does too is done twice"
        found.append(Probe("plugin", Mark.WARNED, text, "turn it off when you have moved: docs/migrating.md"))
    return found


async def _plugins(paperclip: Paperclip) -> list[Json]:
    """The plugins that are installed; none for an agent's key, which may not know."""
    try:
        return await paperclip.plugins()
    except Permanent as error:
        if not is_forbidden(error):
            raise
        return []


def passed(probes: Sequence[Probe]) -> bool:
    """Whether no probe failed; warnings and what is not configured do not count."""
    return all(probe.mark is not Mark.FAILED for probe in probes)


def log_probes(logger: FilteringBoundLogger, probes: Sequence[Probe]) -> None:
    """A line of the log for each probe: errors for what failed, warnings for what is wanting."""
    levels = {Mark.FAILED: logger.error, Mark.WARNED: logger.warning, Mark.ABSENT: logger.warning}
    for probe in probes:
        log = levels.get(probe.mark, logger.info)
        fix = {"fix": probe.fix} if probe.fix else {}
        log("probe", probe=probe.name, mark=probe.mark, found=probe.text, **fix)


def _failed(name: str, error: HandlingError) -> Probe:
    url, key = label(f"{name}_api_url"), label(f"{name}_api_key")
    match error:
        case UpstreamDown(kind=DownKind.REFUSED):
            fix = f"set {key} to a key that is valid there"
        case UpstreamDown():
            fix = f"start it there, or correct {url}"
        case Transient():
            fix = f"look at its log; if nothing is wrong there, correct {url}"
        case _:
            fix = f"correct {url}: another server seems to answer there"
    return Probe(name, Mark.FAILED, str(error), fix)


def _accepts(key: SecretStr | None) -> str:
    return "needs no key" if key is None else "accepts our key"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
