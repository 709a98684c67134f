"""The plugin's configuration as our environment file. Pure.

The plugin is `@vectorize-io/hindsight-paperclip`; its fields and ours are in `consumer.settings.model.PLUGIN_NAMES`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from consumer.settings.model import PLUGIN_NAMES
from consumer.settings.types import variable
from consumer.settings.validation import load_settings

PACKAGE = "@vectorize-io/hindsight-paperclip"
SECRET = PLUGIN_NAMES["hindsight_api_key"]
_OURS = {theirs: ours for ours, theirs in PLUGIN_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Imported:
    """What a configuration comes to.

    Attributes:
        values: by our variables' names.
        left: what does not carry over, a line each.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def is_hindsight_plugin(plugin: Mapping[str, Any]) -> bool:
    """Whether a plugin is the Hindsight plugin, which this project replaces."""
    return plugin.get("packageName") == PACKAGE


def translate(config: Mapping[str, Any]) -> Imported:
    """Our variables for a configuration of the plugin: they give every bank the id that it has.

    Raises:
        SettingsError: a value that the plugin takes is none here; one line each.
    """
    values, left = dict[str, str](), list[str]()
    for name, value in config.items():
        ours = _OURS.get(name)
        if value is None or value == "":
            continue
        if ours is None:
            left.append(f"{name}: the plugin's field has no counterpart")
        elif name == SECRET:
            left.append(f"{name}: names a secret of Paperclip; put the key itself into {variable(ours)}")
        else:
            values[variable(ours)] = _text(value)
    load_settings(**{ours: values[variable(ours)] for ours in PLUGIN_NAMES if variable(ours) in values})
    return Imported(values, tuple(left))


def env_file(imported: Imported, source: str, more: Mapping[str, str]) -> str:
    """The environment file: `NAME=value` lines, as Docker, systemd and `set -a; . FILE` read them.

    Args:
        source: where it comes from, for its first line.
        more: variables that are ours alone.
    """
    lines = [f"# Made by `paperclip-memory import-plugin` from {source}."]
    lines += [f"{name}={_quoted(value)}" for name, value in {**imported.values, **more}.items()]
    lines += [f"# Not carried over: {line}" for line in imported.left]
    return "\n".join(lines) + "\n"


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Fields in which companies' configurations differ, a line each: one installation has one of each."""
    names = sorted({name for config in configs.values() for name in config})
    found = []
    for name in names:
        by_value: dict[str, list[str]] = {}
        for company, config in configs.items():
            by_value.setdefault(json.dumps(config.get(name), sort_keys=True), []).append(company)
        if len(by_value) > 1:
            shown = [
                f"{'a secret' if name == SECRET else value} in {', '.join(ids)}" for value, ids in by_value.items()
            ]
            found.append(f"{name}: {'; '.join(shown)}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _quoted(value: str) -> str:
    """Quoted where a shell would read it otherwise, and only there: not every reader of such files knows quotes."""
    plain = all(char.isalnum() or char in "-_.,:/@%+[]" for char in value)
    return value if plain else "'" + value.replace("'", "'\\''") + "'"
