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
    """Write the environment file for the plugin's configuration in Paperclip; the exit code.

    Args:
        companies: whose; empty: of all that the key can see.
    """
    try:
        async with open_transport(HttpBackend.HTTPX, 4) as send:
            paperclip = PaperclipClient(send, url, key=key, user_agent=USER_AGENT, timeout=TIMEOUT)
            plugin = next((each for each in await paperclip.plugins() if is_hindsight_plugin(each)), None)
            if plugin is None:
                return _fail(f"Paperclip has no plugin {PACKAGE}")
            wanted = companies or (await paperclip.authenticate()).company_ids
            found = {each: await paperclip.plugin_config(plugin["id"], each) for each in wanted}
    except HandlingError as error:
        return _fail(f"{error}: a board member's key is needed" if is_forbidden(error) else str(error))
    configs = {company: dict(each.get("configJson") or {}) for company, each in found.items() if each is not None}
    if not configs:
        return _fail(f"the plugin is configured in none of these companies: {', '.join(wanted)}")
    if different := differences(configs):
        _say("Companies are configured differently, and one installation has one of each: import one with --company,")
        _say("and run an installation for each, with groups and topics of its own.")
        return _fail("; ".join(different))
    state = plugin.get("status")
    _say(f"the plugin is {state}: docs/migrating.md says when to turn it off")
    more = {variable("paperclip_api_url"): url, variable("relay_companies"): ",".join(configs)}
    return _write(next(iter(configs.values())), f"the plugin in Paperclip at {url}", more, output)


def from_file(file: Path, output: Path | None) -> int:
    """Write the environment file for a configuration in a JSON file; the exit code."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return _fail(f"{file}: {error}")
    config = config.get("configJson", config) if isinstance(config, dict) else config
    if not isinstance(config, dict):
        return _fail(f"{file}: holds no JSON object")
    return _write(config, file.name, {}, output)


def _write(config: Mapping[str, Any], source: str, more: Mapping[str, str], output: Path | None) -> int:
    try:
        imported: Imported = translate(config)
    except SettingsError as error:
        return _fail("\n✗ ".join(error.problems))
    text = env_file(imported, source, more)
    for line in imported.left:
        _say(f"! not carried over: {line}")
    if output is None:
        print(text, end="")  # noqa: T201 - this is what the command is for
        return 0
    if output.exists():
        return _fail(f"{output} exists: it is not overwritten")
    output.write_text(text, encoding="utf-8")
    output.chmod(0o600)  # keys are put into it
    _say(f"wrote {output}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _fail(why: str) -> int:
    _say(f"✗ {why}")
    return ExitCode.FAILED
