"""The command `paperclip-memory`: parses arguments and calls `consumer.commands`, which it imports when needed."""

import asyncio
import os
import sys
import time
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from consumer.commands import event_loop
from consumer.dead_letters.model import DeadLetterFilter, parse_time_or_age
from consumer.errors import DeadLetterReason, ExitCode, SettingsError
from consumer.settings.reference import settings_help
from consumer.settings.validation import load_settings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Long-term memory for the agents of a Paperclip instance: Kafka events in, Hindsight recall and retain out.",
)

letters = typer.Typer(no_args_is_help=True, help="List records that could not be handled, and redrive them.")
app.add_typer(letters, name="dead-letters")


class LaneName(StrEnum):
    """Which lane a worker runs."""

    RECALL = "recall"
    RETAIN = "retain"


def _settings_epilog(*, needed: str) -> str:
    return f"Settings come from PAPERCLIP_MEMORY_* variables ({needed}); `paperclip-memory settings` lists them all."


Strict = Annotated[bool, typer.Option("--strict", help="End with exit code 1 if a probe fails at the start.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def worker(
    lane: Annotated[LaneName | None, typer.Option(help="Run only this lane; both by default.")] = None,
    strict: Strict = False,
) -> None:
    """Consume Paperclip's events: recall memories when a run starts, retain comments, forget deleted ones."""
    from consumer.commands.worker import LANES, run_worker  # noqa: PLC0415

    lanes = LANES if lane is None else (lane.value,)
    settings = load_settings()
    _exit(event_loop.run(settings.http_backend, run_worker(settings, lanes, strict=strict)))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL and …_PAPERCLIP_API_URL are required"))
def up(strict: Strict = False) -> None:
    """Run worker, tools, relay and exporter in one process, and create missing topics. For small installations."""
    from consumer.commands.up import run_up  # noqa: PLC0415

    settings = load_settings()
    _exit(event_loop.run(settings.http_backend, run_up(settings, strict=strict)))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def exporter() -> None:
    """Serve the lag of the consumer groups and Hindsight's queue to Prometheus. Several exporters can run."""
    from consumer.commands.exporter import run_exporter  # noqa: PLC0415

    _exit(asyncio.run(run_exporter(load_settings())))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Update every 5 s until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show lag, group members, Hindsight's queue and dead letters. Exit code 1 if a source does not answer."""
    from consumer.commands.status import run_status  # noqa: PLC0415

    if watch and as_json:
        raise typer.BadParameter("--watch and --json exclude each other")
    _exit(asyncio.run(run_status(load_settings(), watch=watch, json=as_json)))


@app.command(epilog=_settings_epilog(needed="this command uses KAFKA_* and TOPIC_*"))
def topics() -> None:
    """Create missing topics and report how existing ones differ. Changes and deletes nothing."""
    from consumer.commands.topics import create_topics  # noqa: PLC0415

    _exit(asyncio.run(create_topics(load_settings())))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def check(as_json: Json = False) -> None:
    """Check the settings and probe Kafka, Hindsight and Paperclip. Exit code 1 if a probe fails, 2 for bad settings."""
    from consumer.commands.check import run_check  # noqa: PLC0415

    _exit(asyncio.run(run_check(as_json=as_json)))


def _when(text: str) -> float:
    try:
        return parse_time_or_age(text, time.time())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a time such as 2026-11-30T10:00 nor an age such as 90m, 2h or 7d"
        ) from None


Reasons = Annotated[list[DeadLetterReason] | None, typer.Option("--reason", help="Only this reason; repeatable.")]
EventTypes = Annotated[
    list[str] | None, typer.Option("--event-type", metavar="TYPE", help="Only this event type; repeatable.")
]
Since = Annotated[
    float | None,
    typer.Option(parser=_when, metavar="TIME", help="Only since this time (2026-11-30T10:00, UTC) or age (2h)."),
]
Until = Annotated[float | None, typer.Option(parser=_when, metavar="TIME", help="Only before this time or age.")]


@letters.command("list", epilog=_settings_epilog(needed="this command uses KAFKA_* and TOPIC_*"))
def list_dead_letters(
    reason: Reasons = None,
    event_type: EventTypes = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="Show only this many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List the dead letters that have not been redriven. Never prints their content."""
    from consumer.commands.dead_letters import list_dead_letters as run_list  # noqa: PLC0415

    letter_filter = DeadLetterFilter(reason or (), event_type or (), since, until)
    _exit(asyncio.run(run_list(load_settings(), letter_filter, limit, as_json=as_json)))


@letters.command(epilog=_settings_epilog(needed="this command uses KAFKA_* and TOPIC_*"))
def redrive(
    reason: Reasons = None,
    event_type: EventTypes = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Write only this many, the oldest; all by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Reprocess documents that Hindsight already ingested.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write dead letters back to their topics, each once. Exit code 1 if Kafka did not accept all of them."""
    from consumer.commands.dead_letters import redrive_dead_letters  # noqa: PLC0415

    letter_filter = DeadLetterFilter(reason or (), event_type or (), since, until)
    run = redrive_dead_letters(load_settings(), letter_filter, limit, dry_run=dry_run, force=force, as_json=as_json)
    _exit(asyncio.run(run))


@app.command(epilog=_settings_epilog(needed="this command uses TOOLS_*"))
def tools(strict: Strict = False) -> None:
    """Serve hindsight_recall and hindsight_retain to agents, over MCP and REST."""
    from consumer.commands.tools import run_tools  # noqa: PLC0415

    _exit(asyncio.run(run_tools(load_settings(), strict=strict)))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_PAPERCLIP_API_URL, …_TOOLS_SHARED_SECRET are required"))
def connect(
    company: Annotated[UUID, typer.Option(help="The company's id in Paperclip.", metavar="ID")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
) -> None:
    """Register the tools in Paperclip, so that its gateway offers them to the company's agents. Safe to repeat."""
    from consumer.commands.connect import run_connect  # noqa: PLC0415

    _exit(asyncio.run(run_connect(load_settings(), str(company), dry_run=dry_run)))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_PAPERCLIP_API_URL is required; RELAY_* apply too"))
def relay(strict: Strict = False) -> None:
    """Follow Paperclip and publish its runs and comments to Kafka."""
    from consumer.commands.relay import run_relay  # noqa: PLC0415

    _exit(asyncio.run(run_relay(load_settings(), strict=strict)))


def _company(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a UUID") from None


Company = Annotated[str, typer.Option(parser=_company, metavar="ID", help="The company's id in Paperclip, a UUID.")]


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_PAPERCLIP_API_URL is required"))
def backfill(
    company: Company,
    since: Annotated[
        float | None,
        typer.Option(parser=_when, metavar="TIME", help="Only comments made since this time or age; all by default."),
    ] = None,
    issue: Annotated[
        str | None, typer.Option(parser=_company, metavar="ID", help="Only this issue's comments.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be published; publish nothing.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Maximum comments per second.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Reprocess documents that Hindsight already ingested.")
    ] = False,
) -> None:
    """Publish past comments, the oldest first. The same command continues where it was interrupted."""
    from consumer.commands.backfill import run_backfill  # noqa: PLC0415

    run = run_backfill(load_settings(), company, since or 0.0, issue, dry_run=dry_run, rate=rate, force=force)
    _exit(asyncio.run(run))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_PAPERCLIP_API_URL is required"))
def audit(
    company: Annotated[
        list[str] | None,
        typer.Option(parser=_company, metavar="ID", help="This company's id; repeatable. All by default."),
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(parser=_when, metavar="TIME", help="Only comments made since this time or age; all by default."),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Repair the differences.")] = False,
    as_json: Json = False,
) -> None:
    """Compare Paperclip's comments with Hindsight's documents. Exit code 1 if they differ."""
    from consumer.commands.audit import run_audit  # noqa: PLC0415

    run = run_audit(load_settings(), company or (), since or 0.0, fix=fix, as_json=as_json)
    _exit(asyncio.run(run))


@app.command(name="import-plugin", epilog="PAPERCLIP_MEMORY_PAPERCLIP_API_KEY must be a board member's key.")
def import_plugin(
    url: Annotated[
        str | None, typer.Option(help="Paperclip's base URL.", envvar="PAPERCLIP_MEMORY_PAPERCLIP_API_URL")
    ] = None,
    company: Annotated[
        list[str] | None,
        typer.Option(parser=_company, metavar="ID", help="This company's configuration; repeatable. All by default."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read this JSON file instead of Paperclip.", dir_okay=False)] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file; prints by default.", dir_okay=False)] = None,
) -> None:
    """Convert the configuration of the plugin @vectorize-io/hindsight-paperclip to an environment file."""
    from consumer.commands.import_plugin import from_file, from_paperclip  # noqa: PLC0415

    if file is not None:
        _exit(from_file(file, output))
        return
    if url is None:
        raise typer.BadParameter("is required without --file", param_hint="--url")
    key = os.environ.get("PAPERCLIP_MEMORY_PAPERCLIP_API_KEY")
    _exit(asyncio.run(from_paperclip(url.rstrip("/"), key, company or (), output)))


@app.command()
def settings() -> None:
    """List every setting with its default and meaning."""
    typer.echo(settings_help())


@app.command()
def schemas(
    name: Annotated[str | None, typer.Argument(help="The schema to print; lists all names by default.")] = None,
) -> None:
    """Print a JSON Schema of an event, or the AsyncAPI document of all topics."""
    directory = files("schemas")
    names = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith((".schema.json", ".yaml")))
    if name is None:
        typer.echo("\n".join(names))
    elif name in names:
        typer.echo((directory / name).read_text(encoding="utf-8"), nl=False)
    else:
        raise typer.BadParameter(f"unknown schema {name!r}: use one of {', '.join(names)}", param_hint="NAME")


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> None:
    """Run the command line. Wrong settings end it with exit code 2 and one line each."""
    try:
        app()
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        sys.exit(ExitCode.WRONG_SETTINGS)
