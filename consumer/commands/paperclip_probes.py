"""Probes of Paperclip: its release, our key and what it may see, the plugin, the tools' connection."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from consumer.commands.probe import Mark, Probe, accepts, failed, numbers
from consumer.errors import HandlingError, Permanent
from consumer.exporter.status import KEY_WARNING, PaperclipState
from consumer.paperclip.models import Identity, Json, KeyKind, is_forbidden
from consumer.settings.model import Settings
from consumer.settings.plugin_import import PACKAGE, is_hindsight_plugin
from consumer.settings.types import label
from consumer.tools.registration_replies import NAME, connection_problem
from schemas.timestamps import format_timestamp

TESTED = ("2026.824.1", "2026.916.1")
"""The releases of Paperclip that the end-to-end tests run on, oldest first."""
WITHOUT_PAPERCLIP = (
    "not configured: events must carry comment, issue and run, else comments are stored as their first 120 characters"
    " and queries lack the comments that woke a run; deletions reach only the bank of the event's own agent; replays"
    " cannot be verified"
)
WITHOUT_AUDIT = (
    "the relay finds deletions only by reading the comments of the last day again, and `audit` does not find cancelled"
    " comments"
)


class Paperclip(Protocol):
    """Paperclip's answers to the probes. Each method raises from `consumer.errors`."""

    async def health(self) -> str | None: ...

    async def authenticate(self) -> Identity: ...

    async def key_expires_at(self) -> float | None: ...

    async def can_read_audit_feed(self, company_id: str) -> bool: ...

    async def plugins(self) -> list[Json]: ...

    async def tool_connections(self, company_id: str) -> list[Json]: ...


async def probe_paperclip(
    settings: Settings, paperclip: Paperclip | None, now: Callable[[], float] = time.time
) -> list[Probe]:
    """Whether Paperclip is up and accepts our key; if so, what this key lacks and what else an operator must know."""
    if paperclip is None:
        return [Probe("paperclip", Mark.ABSENT, WITHOUT_PAPERCLIP, f"set {label('paperclip_api_url')}")]
    try:
        version = await paperclip.health()
        identity = await paperclip.authenticate()
    except HandlingError as error:
        return [failed("paperclip", settings.paperclip_api_key, error)]
    text = f"{settings.paperclip_api_url} answers and {accepts(settings.paperclip_api_key)}"
    text += f"; release {version}" if version else ""
    companies = identity.company_ids
    if not companies:
        return [Probe("paperclip", Mark.WARNED, f"{text}, but shows no company", "use a key that may see them")]
    whose = "an agent's" if identity.kind is KeyKind.AGENT else "a board member's"
    result = [Probe("paperclip", Mark.OK, f"{text}; the key is {whose}; companies: {len(companies)}")]
    result += _release(version)
    details: Sequence[Awaitable[list[Probe]]] = (
        _key(paperclip, now()),
        _audit_feed(paperclip, companies),
        _plugin(paperclip),
        _connections(paperclip, companies),
    )
    for probes in await asyncio.gather(*details, return_exceptions=True):
        if isinstance(probes, HandlingError):  # Paperclip answered just now; the next run of the probes tells
            continue
        if isinstance(probes, BaseException):
            raise probes
        result += probes
    return result


def _release(version: str | None) -> list[Probe]:
    if version is None or version in TESTED:
        return []
    tested = f"tested: {', '.join(TESTED)}"
    fix = "docs/upgrading.md says what changes between releases of Paperclip"
    if numbers(version) < numbers(TESTED[0]):
        return [Probe("release", Mark.WARNED, f"{version} is older than every tested release ({tested})", fix)]
    if numbers(version) > numbers(TESTED[-1]):
        return [Probe("release", Mark.WARNED, f"{version} is newer than every tested release ({tested})", fix)]
    return [Probe("release", Mark.WARNED, f"{version} was not tested ({tested})", fix)]


async def _key(paperclip: Paperclip, now: float) -> list[Probe]:
    expires = await paperclip.key_expires_at()
    if expires is None:
        return []
    days = (expires - now) / 86_400
    text = f"expires in {days:.0f} days, on {format_timestamp(expires)}"
    if expires - now > KEY_WARNING:
        return [Probe("paperclip key", Mark.OK, text)]
    fix = f"create another (docs/paperclip-key.md), set {label('paperclip_api_key')} to it and restart"
    return [Probe("paperclip key", Mark.WARNED, text, fix)]


async def _audit_feed(paperclip: Paperclip, companies: Sequence[str]) -> list[Probe]:
    allowed = await asyncio.gather(*(paperclip.can_read_audit_feed(company) for company in companies))
    if all(allowed):
        return []
    text = f"the key may not read it in {allowed.count(False)} of {len(allowed)} companies: {WITHOUT_AUDIT}"
    fix = "give its user the permission audit:view_agent_actions, or take a board member's key that has it"
    return [Probe("audit feed", Mark.WARNED, text, fix)]


async def _plugin(paperclip: Paperclip) -> list[Probe]:
    try:
        plugins = await paperclip.plugins()
    except Permanent as error:
        if not is_forbidden(error):
            raise
        return []  # an agent's key may not know
    if not any(is_hindsight_plugin(plugin) and plugin.get("status") == "ready" for plugin in plugins):
        return []
    text = f"{PACKAGE} is enabled in Paperclip: both would process the same events"
    return [Probe("plugin", Mark.WARNED, text, "turn it off when you have moved: docs/migrating.md")]


async def _connections(paperclip: Paperclip, companies: Sequence[str]) -> list[Probe]:
    fix = "run `paperclip-memory connect --company {}`, which repairs and tests it"
    problems = await _tool_problems(paperclip, companies)
    return [Probe(f"tools of company {id_}", Mark.WARNED, text, fix.format(id_)) for id_, text in problems.items()]


async def _tool_problems(paperclip: Paperclip, companies: Sequence[str]) -> dict[str, str]:
    listed = await asyncio.gather(*(paperclip.tool_connections(company) for company in companies))
    return {
        company: problem
        for company, connections in zip(companies, listed, strict=True)
        for connection in connections
        if connection.get("name") == NAME and (problem := connection_problem(connection))
    }


async def read_paperclip(paperclip: Paperclip) -> PaperclipState:
    """What `status` shows of Paperclip; raises from `consumer.errors`."""
    companies = (await paperclip.authenticate()).company_ids
    release, expires, problems = await asyncio.gather(
        paperclip.health(), paperclip.key_expires_at(), _tool_problems(paperclip, companies)
    )
    return PaperclipState(release, expires, problems)
