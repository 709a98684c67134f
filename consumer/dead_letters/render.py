"""Renders dead letters and the result of a redrive, as text and as JSON. Never a record's value or key.

Anybody who may write to the topic chooses the texts: none is markup for Rich, and none controls the terminal.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from consumer.dead_letters.model import DeadLetter
from consumer.dead_letters.redrive import RedriveResult
from consumer.dead_letters.topic import TopicContents
from consumer.memory.sanitize import printable
from schemas.timestamps import format_timestamp


def render_table(letters: Sequence[DeadLetter]) -> Table:
    """One row for each dead letter."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("position", "written", "reason", "event type", "from", "attempts", "redrives"):
        table.add_column(name, no_wrap=name in ("position", "written"))
    table.add_column("error", overflow="fold", ratio=1)
    for letter in letters:
        source = f"{letter.topic}:{letter.topic_partition}:{letter.topic_offset}"
        truncated = " (truncated)" if letter.truncated_from is not None else ""
        reason, event_type = letter.reason + truncated, letter.event_type or "\N{EN DASH}"
        attempts, redrives = str(letter.attempts), str(letter.redrives)
        written = format_timestamp(letter.written, "seconds")
        cells = (letter.label, written, reason, event_type, source, attempts, redrives, letter.error)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def list_text(matching: Sequence[DeadLetter], contents: TopicContents, listed: int) -> str:
    """The summary under the table."""
    of_all = f" of {len(contents.open)}" if len(matching) < len(contents.open) else ""
    lines = [f"{len(matching)} open{of_all}: {_counts(letter.reason for letter in matching) or 'none'}"]
    if listed < len(matching):
        lines.append(f"the {listed} newest are listed; --limit lists more")
    if contents.redriven:
        lines.append(f"{contents.redriven} more were sent back")
    if contents.foreign:
        lines.append(f"{contents.foreign} records of the topic are not dead letters of paperclip-memory")
    return "\n".join(map(printable, lines))


def list_json(matching: Sequence[DeadLetter], contents: TopicContents, listed: Sequence[DeadLetter]) -> str:
    """The list for scripts."""
    counts = Counter(letter.reason for letter in matching)
    return _json(
        open=len(matching),
        by_reason=dict(counts),
        redriven=contents.redriven,
        foreign=contents.foreign,
        dead_letters=[_letter_json(letter) for letter in listed],
    )


def redrive_text(result: RedriveResult, chosen: Sequence[DeadLetter], *, dry_run: bool) -> str:
    """The result, or what it would be; one line for each dead letter that cannot be sent."""
    sent = chosen if dry_run else result.sent
    lines = [f"✗ {letter.label} not sent: {why}" for letter, why in result.refused]
    if result.failed:
        lines.append(f"✗ stopped: {result.failed}")
    verb = "would be sent" if dry_run else "sent"
    lines.append(f"{len(sent)} {verb} back: {_counts(letter.topic for letter in sent) or 'none'}")
    if result.gone:
        lines.append(f"{result.gone} were removed by retention meanwhile")
    return "\n".join(map(printable, lines))


def redrive_json(result: RedriveResult, chosen: Sequence[DeadLetter], *, dry_run: bool) -> str:
    """The result for scripts."""
    return _json(
        dry_run=dry_run,
        chosen=len(chosen),
        sent=[letter.label for letter in result.sent],
        refused=[{"position": letter.label, "why": why} for letter, why in result.refused],
        gone=result.gone,
        failed=result.failed or None,
    )


def _letter_json(letter: DeadLetter) -> dict[str, Any]:
    return {"position": letter.label, **asdict(letter), "written": format_timestamp(letter.written, "seconds")}


def _json(**values: object) -> str:
    return json.dumps(values, indent=2)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())
