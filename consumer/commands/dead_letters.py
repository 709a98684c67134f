"""Wiring of `dead-letters list` and `dead-letters redrive`."""

import sys
from functools import partial

from rich.console import Console

from consumer.commands.clients import dead_letter_topic
from consumer.commands.progress import progress_bar
from consumer.dead_letters import render
from consumer.dead_letters.model import Filter
from consumer.dead_letters.redrive import plan, redrive
from consumer.dead_letters.topic import Survey
from consumer.errors import ExitCode, UpstreamDown
from consumer.kafka.options import producer, translate_kafka_errors
from consumer.kafka.producer import Publisher
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel


async def list_letters(settings: Settings, wanted: Filter, limit: int, *, as_json: bool) -> int:
    """Print the open dead letters that are wanted, the `limit` newest of them; the exit code."""
    survey = await _survey(settings)
    if survey is None:
        return ExitCode.FAILED
    matching = [letter for letter in survey.open if wanted(letter)]
    shown = matching[-limit:]
    if as_json:
        print(render.list_json(matching, survey, shown))  # noqa: T201 - this is what the command is for
    else:
        if shown:
            _console().print(render.table(shown))
        print(render.list_text(matching, survey, len(shown)))  # noqa: T201
    return 0


async def redrive_letters(
    settings: Settings, wanted: Filter, limit: int | None, *, dry_run: bool, force: bool, as_json: bool
) -> int:
    """Send the open dead letters that are wanted back to where they came from; the exit code."""
    survey = await _survey(settings)
    if survey is None:
        return ExitCode.FAILED
    chosen, outcome = plan([letter for letter in survey.open if wanted(letter)], survey.sources, limit)
    if dry_run and chosen and not as_json:
        _console().print(render.table(chosen))
    if not dry_run:
        publisher = Publisher(partial(producer, settings))
        try:
            with translate_kafka_errors(settings), progress_bar("sending") as progress:
                topic = dead_letter_topic(settings)
                await redrive(chosen, topic, survey.sources, publisher.publish, outcome, progress, force=force)
        except UpstreamDown as error:
            outcome.failed = str(error)
        finally:
            await publisher.close()
    to_text = render.redrive_json if as_json else render.redrive_text
    print(to_text(outcome, chosen, dry_run=dry_run))  # noqa: T201
    return ExitCode.FAILED if outcome.failed else 0


async def _survey(settings: Settings) -> Survey | None:
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            return await dead_letter_topic(settings).survey(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"✗ {error}\n")
        return None


def _console() -> Console:
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
