"""`paperclip-memory import-plugin`."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consumer.commands.clients import USER_AGENT
from consumer.errors import ExitCode, HandlingError, SettingsError
from consumer.http.backends import open_transport
from consumer.paperclip.client import PaperclipClient
from consumer.paperclip.models import is_forbidden
from consumer.settings.plugin_import import PACKAGE, Imported, differences, env_file, is_hindsight_plugin, translate
from consumer.settings.types import HttpBackend, variable

TIMEOUT = 15.0


async def from_paperclip(url: str, key: str | None, companies: Sequence[str], output: Path | None) -> int:
    """Write the environment file for the plugin's configuration in Paperclip; returns the exit code.

    Args:
        companies: their ids; empty: all that the key can read.
    """
    try:
        async with open_transport(HttpBackend.HTTPX, 4) as send:
            paperclip = PaperclipClient(send, url, key=key, user_agent=USER_AGENT, timeout=TIMEOUT)
            plugin = next((plugin for plugin in await paperclip.plugins() if is_hindsight_plugin(plugin)), None)
            if plugin is None:
                return _fail(f"Paperclip has no plugin {PACKAGE}")
            company_ids = companies or (await paperclip.authenticate()).company_ids
            rows = {company: await paperclip.plugin_config(plugin["id"], company) for company in company_ids}
    except HandlingError as error:
        return _fail(f"{error}: a board member's key is needed" if is_forbidden(error) else str(error))
    configs = {company: dict(row.get("configJson") or {}) for company, row in rows.items() if row is not None}
    if not configs:
        return _fail(f"the plugin is not configured in any of these companies: {', '.join(company_ids)}")
    if different := differences(configs):
        _print("The companies' configurations differ, but an installation has only one: import one with --company,")
        _print("and run an installation for each configuration, with its own groups and topics.")
        return _fail("; ".join(different))
    state = plugin.get("status")
    _print(f"the plugin is {state}: docs/migrating.md says when to turn it off")
    additional = {variable("paperclip_api_url"): url, variable("relay_companies"): ",".join(configs)}
    return _write(next(iter(configs.values())), f"the plugin in Paperclip at {url}", additional, output)


def from_file(file: Path, output: Path | None) -> int:
    """Write the environment file for a configuration in a JSON file; returns the exit code."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return _fail(f"{file}: {error}")
    config = config.get("configJson", config) if isinstance(config, dict) else config
    if not isinstance(config, dict):
        return _fail(f"{file}: does not contain a JSON object")
    return _write(config, file.name, {}, output)


def _write(config: Mapping[str, Any], source: str, additional: Mapping[str, str], output: Path | None) -> int:
    try:
        imported: Imported = translate(config)
    except SettingsError as error:
        return _fail("\n✗ ".join(error.problems))
    text = env_file(imported, source, additional)
    for line in imported.not_imported:
        _print(f"! not carried over: {line}")
    if output is None:
        print(text, end="")  # noqa: T201
        return 0
    if output.exists():
        return _fail(f"{output} exists and is not overwritten")
    output.write_text(text, encoding="utf-8")
    output.chmod(0o600)  # it will hold keys
    _print(f"wrote {output}")
    return 0


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _fail(why: str) -> int:
    _print(f"✗ {why}")
    return ExitCode.FAILED
