"""`paperclip-memory check`, and the same probes at the start of a process."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import structlog

from consumer.commands.clients import open_clients
from consumer.commands.probe import Mark, Probe, log_probes, passed
from consumer.commands.probes import probe_all, settings_probes
from consumer.commands.runtime import Process
from consumer.errors import ExitCode, SettingsError
from consumer.kafka.options import client_options
from consumer.observability.logs import configure_logging
from consumer.settings.model import Settings
from consumer.settings.reference import unknown_variables
from consumer.settings.types import LogFormat, LogLevel
from consumer.settings.validation import load_settings


async def run_check(*, as_json: bool) -> int:
    """Print the result of every probe; returns the exit code."""
    render = to_json if as_json else to_text
    try:
        settings = load_settings()
        client_options(settings)  # reads the TLS files
    except SettingsError as error:
        print(render(settings_probes(error)))  # noqa: T201
        return ExitCode.WRONG_SETTINGS
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    probes = [*(Probe("settings", Mark.WARNED, line) for line in unknown_variables()), *await probe(settings)]
    print(render(probes))  # noqa: T201
    return 0 if passed(probes) else ExitCode.FAILED


async def probe_at_start(process: Process) -> bool:
    """Probe what a process depends on and log each result; False if a probe failed."""
    log = structlog.get_logger()
    for line in unknown_variables():
        log.warning(line)
    probes = await probe(process.settings)
    log_probes(log, probes)
    return passed(probes)


async def probe(settings: Settings) -> list[Probe]:
    """Probe Kafka, Hindsight and Paperclip."""
    async with open_clients(settings, limit=4) as (hindsight, paperclip):
        return await probe_all(settings, hindsight, paperclip)


def to_text(probes: Sequence[Probe]) -> str:
    """One line each, for people."""
    return "\n".join(probe.line for probe in probes)


def to_json(probes: Sequence[Probe]) -> str:
    """For scripts: `ok`, and the probes in order."""
    return json.dumps({"ok": passed(probes), "probes": [asdict(probe) for probe in probes]}, indent=2)
