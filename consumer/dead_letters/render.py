"""Dead letters and what came of sending them back, as text and as JSON. No line holds a record's value or key."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from consumer.dead_letters.model import Letter
from consumer.dead_letters.redrive import Outcome
from consumer.dead_letters.topic import Survey
from schemas.timestamps import format_timestamp


def table(letters: Sequence[Letter]) -> Table:
    """One row for each letter."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("letter", "written", "reason", "event type", "from", "tries", "redrives"):
        shown.add_column(name, no_wrap=name in ("letter", "written"))
    shown.add_column("error", overflow="fold", ratio=1)
    for letter in letters:
        source = f"{letter.topic}:{letter.topic_partition}:{letter.topic_offset}"
        cut = " (cut)" if letter.cut_from is not None else ""
        reason, event_type = letter.reason + cut, letter.event_type or "\N{EN DASH}"
        tries, redrives = str(letter.attempts), str(letter.redrives)
        written = format_timestamp(letter.written, "seconds")
        shown.add_row(letter.at, written, reason, event_type, source, tries, redrives, letter.error)
    return shown


def list_text(matching: Sequence[Letter], survey: Survey, shown: int) -> str:
    """The line under the table."""
    lines = [f"{len(matching)} open{_of(survey.open, matching)}: {_counts(each.reason for each in matching) or 'none'}"]
    if shown < len(matching):
        lines.append(f"shown are the {shown} newest; --limit shows more")
    if survey.redriven:
        lines.append(f"{survey.redriven} more were sent back")
    if survey.foreign:
        lines.append(f"{survey.foreign} records of the topic are no dead letters of ours")
    return "\n".join(lines)


def list_json(matching: Sequence[Letter], survey: Survey, shown: Sequence[Letter]) -> str:
    """For scripts."""
    counts = Counter(letter.reason for letter in matching)
    return _json(
        open=len(matching),
        by_reason=dict(counts),
        redriven=survey.redriven,
        foreign=survey.foreign,
        letters=[_plain(letter) for letter in shown],
    )


def redrive_text(outcome: Outcome, chosen: Sequence[Letter], *, dry_run: bool) -> str:
    """What was done, or would be; one line for each letter that cannot be sent."""
    done = chosen if dry_run else outcome.sent
    lines = [f"✗ {letter.at} not sent: {why}" for letter, why in outcome.refused]
    if outcome.failed:
        lines.append(f"✗ stopped: {outcome.failed}")
    verb = "would be sent" if dry_run else "sent"
    lines.append(f"{len(done)} {verb} back: {_counts(letter.topic for letter in done) or 'none'}")
    if outcome.gone:
        lines.append(f"{outcome.gone} were removed by retention meanwhile")
    return "\n".join(lines)


def redrive_json(outcome: Outcome, chosen: Sequence[Letter], *, dry_run: bool) -> str:
    """For scripts."""
    return _json(
        dry_run=dry_run,
        chosen=len(chosen),
        sent=[letter.at for letter in outcome.sent],
        refused=[{"letter": letter.at, "why": why} for letter, why in outcome.refused],
        gone=outcome.gone,
        failed=outcome.failed or None,
    )


def _plain(letter: Letter) -> dict[str, Any]:
    return {"letter": letter.at, **asdict(letter), "written": format_timestamp(letter.written, "seconds")}


def _json(**values: object) -> str:
    return json.dumps(values, indent=2)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())


def _of(everything: Sequence[Letter], some: Sequence[Letter]) -> str:
    return f" of {len(everything)}" if len(some) < len(everything) else ""
