"""Converts the configuration of the plugin `@vectorize-io/hindsight-paperclip` to an environment file. Pure."""

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
    """The result of a conversion.

    Attributes:
        values: by variable name.
        not_imported: one line for each field without a counterpart.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    not_imported: tuple[str, ...] = ()


def is_hindsight_plugin(plugin: Mapping[str, Any]) -> bool:
    """Whether a plugin is the Hindsight plugin, which this project replaces."""
    return plugin.get("packageName") == PACKAGE


def translate(config: Mapping[str, Any]) -> Imported:
    """Convert a configuration of the plugin. Every bank keeps its id.

    Raises:
        SettingsError: values that the plugin accepts and this project does not; one line each.
    """
    values, not_imported = dict[str, str](), list[str]()
    for name, value in config.items():
        ours = _OURS.get(name)
        if value is None or value == "":
            continue
        if ours is None:
            not_imported.append(f"{name}: the plugin's field has no counterpart")
        elif name == SECRET:
            not_imported.append(f"{name}: names a secret of Paperclip; put the key itself into {variable(ours)}")
        else:
            values[variable(ours)] = _text(value)
    load_settings(**{ours: values[variable(ours)] for ours in PLUGIN_NAMES if variable(ours) in values})
    return Imported(values, tuple(not_imported))


def env_file(imported: Imported, source: str, additional: Mapping[str, str]) -> str:
    """The environment file: `NAME=value` lines, as Docker, systemd and `set -a; . FILE` read them.

    Args:
        source: the origin, named in the first line.
        additional: variables that the plugin does not have.
    """
    lines = [f"# Made by `paperclip-memory import-plugin` from {source}."]
    lines += [f"{name}={_quoted(value)}" for name, value in {**imported.values, **additional}.items()]
    lines += [f"# Not carried over: {line}" for line in imported.not_imported]
    return "\n".join(lines) + "\n"


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each field in which the companies' configurations differ; an installation has only one of each."""
    names = sorted({name for config in configs.values() for name in config})
    lines = []
    for name in names:
        by_value: dict[str, list[str]] = {}
        for company, config in configs.items():
            by_value.setdefault(json.dumps(config.get(name), sort_keys=True), []).append(company)
        if len(by_value) > 1:
            values = [
                f"{'a secret' if name == SECRET else value} in {', '.join(ids)}" for value, ids in by_value.items()
            ]
            lines.append(f"{name}: {'; '.join(values)}")
    return lines


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def _quoted(value: str) -> str:
    """Quote a value only if a shell requires it: some readers of such files do not support quotes."""
    plain = all(char.isalnum() or char in "-_.,:/@%+[]" for char in value)
    return value if plain else "'" + value.replace("'", "'\\''") + "'"
