"""The command `paperclip-memory`: parsing, and calls of `consumer.app`; nothing else."""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consumer.errors import SettingsError
from consumer.settings import load_settings
from consumer.settings_text import settings_help

EXIT_SETTINGS = 2

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Long-term memory for the agents of a Paperclip instance: Kafka events in, Hindsight recall and retain out.",
)


class LaneName(StrEnum):
    """Which lane a worker runs."""

    RECALL = "recall"
    RETAIN = "retain"


def _settings_epilog(*, needed: str) -> str:
    return f"Settings come from PAPERCLIP_MEMORY_* variables ({needed}); `paperclip-memory settings` lists them all."


Strict = Annotated[bool, typer.Option("--strict", help="End with exit code 1 when a probe fails at the start.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def worker(
    lane: Annotated[LaneName | None, typer.Option(help="Run this lane alone; without it, both.")] = None,
    strict: Strict = False,
) -> None:
    """Consume Paperclip's events: recall when a run starts, retain comments, forget deleted ones."""
    from consumer import app as wiring  # noqa: PLC0415 - `--help` and `schemas` need none of it

    lanes = wiring.LANES if lane is None else (lane.value,)
    _exit(asyncio.run(wiring.run_worker(load_settings(), lanes, strict=strict)))


@app.command(epilog=_settings_epilog(needed="the KAFKA_* and TOPIC_* ones count here"))
def topics() -> None:
    """Create the topics that are missing; say how existing ones differ. Changes and deletes nothing."""
    from consumer import app as wiring  # noqa: PLC0415

    _exit(asyncio.run(wiring.create_topics(load_settings())))


@app.command(epilog=_settings_epilog(needed="PAPERCLIP_MEMORY_HINDSIGHT_API_URL is required"))
def check(as_json: Json = False) -> None:
    """Check the settings and probe Kafka, Hindsight and Paperclip. Exit code 1 if any probe fails, 2 for settings."""
    from consumer import app as wiring  # noqa: PLC0415

    _exit(asyncio.run(wiring.run_check(as_json=as_json)))


@app.command()
def settings() -> None:
    """List every setting with its default and meaning."""
    typer.echo(settings_help())


@app.command()
def schemas(
    directory: Annotated[
        Path, typer.Argument(help="Where to write; the repository's own is `schemas`.", file_okay=False)
    ] = Path("schemas"),
) -> None:
    """Write the JSON Schemas, the AsyncAPI document and the examples of all events."""
    from schemas.generate import write  # noqa: PLC0415

    for path in write(directory):
        typer.echo(f"wrote {path}")


@app.command()
def demo() -> None:
    """Show the whole path on this machine: a broker, a Hindsight, a worker and a recording. Needs no services."""
    from consumer.demo import play  # noqa: PLC0415

    _exit(play.main())


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> None:
    """Run the command line; wrong settings end it with exit code 2 and one line each."""
    try:
        app()
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"error: {problem}\n")
        sys.exit(EXIT_SETTINGS)
