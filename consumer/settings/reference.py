"""The text of `paperclip-memory settings`, and warnings about unknown variables."""

import os
from enum import StrEnum
from pathlib import Path

from pydantic_core import PydanticUndefined

from consumer.settings.model import Settings
from consumer.settings.types import PREFIX, variable
from consumer.settings.validation import SECRETS_DIR, nearest

SECRETS_DIR_MEANING = "Directory of files named like these variables, in lower or upper case, each with one value."


def settings_help() -> str:
    """All variables as plain text: default and meaning."""
    lines = ["Settings (environment variables; see docs/settings.md):"]
    for name, field in Settings.model_fields.items():
        default = default_text(name)
        note = " [required]" if field.is_required() else f" [{default}]" if default else ""
        lines += [f"  {variable(name)}{note}", f"      {(field.description or '').replace('`', '')}"]
    lines += [f"  {SECRETS_DIR}", f"      {SECRETS_DIR_MEANING}"]
    return "\n".join(lines)


def unknown_variables() -> list[str]:
    """One warning for each `PAPERCLIP_MEMORY_*` variable, and each such file, that is not a setting.

    A file with a setting's name but without the prefix counts too: it is not read.
    """
    names = {variable(name) for name in Settings.model_fields}
    lines = [
        f"unknown setting {name}{_hint(name)}"
        for name in sorted(os.environ)
        if name.upper().startswith(PREFIX) and name.upper() not in names | {SECRETS_DIR}
    ]
    directory = os.environ.get(SECRETS_DIR, "").strip()
    for name in sorted(path.name for path in Path(directory).iterdir()) if directory else ():
        unprefixed = variable(name) in names
        if unprefixed or (name.upper().startswith(PREFIX) and name.upper() not in names):
            lines.append(f"unknown setting: file {name} in {SECRETS_DIR}{_hint(name)}")
    return lines


def _hint(name: str) -> str:
    near = nearest(name.upper().removeprefix(PREFIX))
    return f" (did you mean {variable(near)}?)" if near else ""


def default_text(name: str) -> str:
    """A setting's default as in a variable; "" if it has none."""
    value = Settings.model_fields[name].default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and not isinstance(value, StrEnum) else str(value)
