"""One screen for a person: how far the lanes are, what waits in Hindsight, what could not be handled."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from consumer.errors import PaperclipMemoryError
from consumer.exporter.lag import Lag
from consumer.exporter.snapshot import GroupSnapshot, HindsightSnapshot, KafkaSnapshot, OperationStatus
from consumer.memory.sanitize import printable
from schemas.timestamps import format_timestamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Letters:
    """The open dead letters by reason, and how many were sent back."""

    by_reason: dict[str, int]
    redriven: int


@dataclass(frozen=True, slots=True)
class PaperclipState:
    """Paperclip and what agents can do there.

    Attributes:
        release: None if Paperclip does not tell it.
        key_expires: seconds since the epoch; None if our key does not end or its end is not known.
        tool_problems: why agents of a company cannot use the tools, by the company's id.
    """

    release: str | None
    key_expires: float | None
    tool_problems: dict[str, str]


@dataclass(frozen=True, slots=True)
class Status:
    """The installation at one moment.

    Attributes:
        at: when, seconds since the epoch.
        kafka, hindsight, letters: None if the source did not answer; `silent` says why, by its name.
        paperclip: also None where no Paperclip is configured.
    """

    at: float
    kafka: KafkaSnapshot | None
    hindsight: HindsightSnapshot | None
    letters: Letters | None
    paperclip: PaperclipState | None
    silent: dict[str, str]


async def take(
    kafka: Callable[[], Awaitable[KafkaSnapshot]],
    hindsight: Callable[[], Awaitable[HindsightSnapshot]],
    letters: Callable[[], Awaitable[Letters]],
    paperclip: Callable[[], Awaitable[PaperclipState | None]],
    now: Callable[[], float] = time.time,
) -> Status:
    """Ask all sources at once; one that does not answer hides no other."""
    silent: dict[str, str] = {}

    async def ask(name: str, look: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await look()
        except PaperclipMemoryError as error:
            silent[name] = str(error)
            return None

    seen = await asyncio.gather(
        ask("kafka", kafka), ask("hindsight", hindsight), ask("dead letters", letters), ask("paperclip", paperclip)
    )
    return Status(now(), *seen, silent)


KEY_WARNING = 7 * 86_400.0
"""Seconds before the end of Paperclip's key from which its end is a warning."""
SHOWN = 32
"""Partitions of a group that are shown; beyond that, only those with a lag."""


def as_screen(status: Status) -> RenderableType:
    """For people."""
    parts: list[RenderableType] = [Text(f"paperclip-memory, {_clock(status.at)}", style="bold")]
    parts += [Text(printable(f"✗ {name}: {why}"), style="red") for name, why in status.silent.items()]
    for group in status.kafka.groups if status.kafka else ():
        parts += ["", _headline(group, status.at), *_partitions(group)]
    if seen := status.hindsight:
        parts += ["", *_hindsight(seen)]
    if letters := status.letters:
        parts += ["", _letters(letters)]
    if paperclip := status.paperclip:
        parts += ["", *_paperclip(paperclip, status.at)]
    return Group(*parts)


def _headline(group: GroupSnapshot, now: float) -> Text:
    lag = sum(each.records for each in group.lags)
    behind = max((each.seconds for each in group.lags), default=0.0)
    commit = "no commit known" if group.last_commit is None else f"last commit {_span(now - group.last_commit)} ago"
    lagging = f"{lag} records behind, the oldest for {_span(behind)}" if lag else "nothing waits"
    members = f"{group.members} member{'s' * (group.members != 1)}"
    alarming = lag and not group.members
    text = Text.assemble((group.name, "bold"), ": ", (members, "red" if alarming else ""), f" ({group.state}), ")
    return text.append(f"{lagging}, {commit}")


def _partitions(group: GroupSnapshot) -> list[RenderableType]:
    found: list[RenderableType] = [
        Text(f"✗ topic {topic} does not exist: run `paperclip-memory topics`", style="red")
        for topic in group.topics
        if not any(lag.partition.topic == topic for lag in group.lags)
    ]
    shown = group.lags if len(group.lags) <= SHOWN else [lag for lag in group.lags if lag.records][:SHOWN]
    if shown:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("topic")
        for name in ("partition", "committed", "end", "lag", "behind"):
            table.add_column(name, justify="right")
        for lag in shown:
            table.add_row(lag.partition.topic, *_row(lag), style="yellow" if lag.records else "")
        found.append(table)
    if hidden := len(group.lags) - len(shown):
        found.append(Text(f"{hidden} more partitions are not shown", style="dim"))
    return found


def _row(lag: Lag) -> tuple[str, ...]:
    committed = "none" if lag.committed is None else str(lag.committed)
    return str(lag.partition.number), committed, str(lag.end), str(lag.records), _span(lag.seconds)


def _hindsight(seen: HindsightSnapshot) -> list[RenderableType]:
    counts = [f"{seen.backlog.total(status)} {status}" for status in OperationStatus]
    failed = seen.backlog.consolidation_failed
    lines = [
        f"{', '.join(counts)} operations; the oldest unfinished is {_span(seen.oldest_pending)} old",
        f"{seen.backlog.consolidation} memories wait for consolidation, of {failed} it failed",
        f"{seen.banks_known} banks, {seen.banks_observed} of them looked into; counts from {seen.origin}",
    ]
    return [Text("Hindsight", style="bold"), *map(Text, lines)]


def _letters(letters: Letters) -> Text:
    total = sum(letters.by_reason.values())
    reasons = ", ".join(f"{count} {printable(reason)}" for reason, count in Counter(letters.by_reason).most_common())
    text = Text.assemble(("Dead letters", "bold"), ": ", (f"{total} open", "yellow" if total else ""))
    return text.append((f" ({reasons})" if reasons else "") + f", {letters.redriven} sent back")


def _paperclip(state: PaperclipState, now: float) -> list[RenderableType]:
    text = Text.assemble(("Paperclip", "bold"), f": release {state.release or 'unknown'}")
    if state.key_expires is not None:
        left = state.key_expires - now
        text.append(f", our key ends in {_span(left)}", style="yellow" if left < KEY_WARNING else "")
    problems = [
        Text(f"✗ tools of company {company}: {problem}", style="red")
        for company, problem in state.tool_problems.items()
    ]
    return [text, *problems]


def as_json(status: Status) -> str:
    """For scripts: every partition; null for a source that did not answer."""
    document = {
        "at": format_timestamp(status.at, "seconds"),
        "silent": status.silent,
        "groups": None if status.kafka is None else [_group(group) for group in status.kafka.groups],
        "hindsight": None if status.hindsight is None else _queue(status.hindsight),
        "dead_letters": None if status.letters is None else asdict(status.letters),
        "paperclip": None if status.paperclip is None else _paperclip_json(status.paperclip),
    }
    return json.dumps(document, indent=2)


def _group(group: GroupSnapshot) -> dict[str, Any]:
    return {
        "group": group.name,
        "members": group.members,
        "state": group.state,
        "last_commit": None if group.last_commit is None else format_timestamp(group.last_commit, "seconds"),
        "lag_records": sum(lag.records for lag in group.lags),
        "lag_seconds": max((lag.seconds for lag in group.lags), default=0.0),
        "partitions": [
            {
                "topic": lag.partition.topic,
                "partition": lag.partition.number,
                "committed": lag.committed,
                "end": lag.end,
                "lag_records": lag.records,
                "lag_seconds": lag.seconds,
            }
            for lag in group.lags
        ],
    }


def _queue(seen: HindsightSnapshot) -> dict[str, Any]:
    return {
        "origin": seen.origin,
        **{status.value: seen.backlog.total(status) for status in OperationStatus},
        "oldest_pending_seconds": seen.oldest_pending,
        "consolidation_backlog": seen.backlog.consolidation,
        "consolidation_failed": seen.backlog.consolidation_failed,
        "banks_known": seen.banks_known,
        "banks_observed": seen.banks_observed,
    }


def _paperclip_json(state: PaperclipState) -> dict[str, Any]:
    expires = state.key_expires
    return asdict(state) | {"key_expires": None if expires is None else format_timestamp(expires, "seconds")}


_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def _span(seconds: float) -> str:
    """A span of time in its two largest units."""
    whole = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        if whole >= size or (unit == "s" and not parts):
            parts.append(f"{whole // size} {unit}")
            whole %= size
    return " ".join(parts[:2])


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
