"""`paperclip-memory dead-letters list` and `redrive`."""

import sys
from functools import partial

from rich.console import Console

from consumer.commands.clients import dead_letter_topic
from consumer.commands.progress import progress_bar
from consumer.dead_letters import render
from consumer.dead_letters.model import DeadLetterFilter
from consumer.dead_letters.redrive import plan_redrive, redrive
from consumer.dead_letters.topic import TopicContents
from consumer.errors import ExitCode, UpstreamDown
from consumer.kafka.options import producer, translate_kafka_errors
from consumer.kafka.producer import Publisher
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.types import LogFormat, LogLevel


async def list_dead_letters(settings: Settings, letter_filter: DeadLetterFilter, limit: int, *, as_json: bool) -> int:
    """Print the open dead letters that match, at most the `limit` newest of them. Returns the exit code."""
    contents = await _read(settings)
    if contents is None:
        return ExitCode.FAILED
    matching = [letter for letter in contents.open if letter_filter(letter)]
    listed = matching[-limit:]
    if as_json:
        print(render.list_json(matching, contents, listed))  # noqa: T201 - this is what the command is for
    else:
        if listed:
            _console().print(render.render_table(listed))
        print(render.list_text(matching, contents, len(listed)))  # noqa: T201
    return 0


async def redrive_dead_letters(
    settings: Settings,
    letter_filter: DeadLetterFilter,
    limit: int | None,
    *,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Send the open dead letters that match back to their topics. Returns the exit code."""
    contents = await _read(settings)
    if contents is None:
        return ExitCode.FAILED
    matching = [letter for letter in contents.open if letter_filter(letter)]
    chosen, result = plan_redrive(matching, contents.sources, limit)
    if dry_run and chosen and not as_json:
        _console().print(render.render_table(chosen))
    if not dry_run:
        publisher = Publisher(partial(producer, settings))
        try:
            with translate_kafka_errors(settings), progress_bar("sending") as progress:
                topic = dead_letter_topic(settings)
                await redrive(chosen, topic, contents.sources, publisher.publish, result, progress, force=force)
        except UpstreamDown as error:
            result.failed = str(error)
        finally:
            await publisher.close()
    to_text = render.redrive_json if as_json else render.redrive_text
    print(to_text(result, chosen, dry_run=dry_run))  # noqa: T201
    return ExitCode.FAILED if result.failed else 0


async def _read(settings: Settings) -> TopicContents | None:
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    try:
        with translate_kafka_errors(settings), progress_bar("reading dead letters") as progress:
            return await dead_letter_topic(settings).read(progress)
    except UpstreamDown as error:
        sys.stderr.write(f"✗ {error}\n")
        return None


def _console() -> Console:
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
