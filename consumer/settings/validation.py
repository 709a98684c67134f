"""Loads the settings and checks that they fit together.

They come from `PAPERCLIP_MEMORY_*` variables and from files of the same names in a secrets directory.
"""

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError as UnreadableSource

from consumer.errors import SettingsError
from consumer.settings.model import Settings
from consumer.settings.types import PREFIX, SaslMechanism, label

SECRETS_DIR = f"{PREFIX}SECRETS_DIR"
_PASSWORD_NEEDS = ("kafka_sasl_username", "kafka_sasl_password")
_OAUTH_NEEDS = ("kafka_oauth_token_url", "kafka_oauth_client_id", "kafka_oauth_client_secret")
_SASL_FIELDS = ("kafka_sasl_mechanism", *_PASSWORD_NEEDS, *_OAUTH_NEEDS, "kafka_oauth_scope")
_TLS_FIELDS = ("kafka_ssl_cafile", "kafka_ssl_certfile", "kafka_ssl_keyfile", "kafka_ssl_password")
_TOPICS = ("topic_agent_runs", "topic_issue_comments", "topic_recalls", "topic_dead_letters", "topic_relay_checkpoints")
_GROUPS = ("group_recall", "group_retain")


def is_secret(field: str) -> bool:
    """Whether a field's value must not be printed."""
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def load_settings(**overrides: Any) -> Settings:
    """Read and check all settings. A variable wins over a file, `overrides` win over both; blank counts as unset.

    Raises:
        SettingsError: one line for each problem: the field, its variable, the value (never a secret), what is allowed.
    """
    directory = os.environ.get(SECRETS_DIR, "").strip() or None
    if directory is not None and not Path(directory).is_dir():
        raise SettingsError([f"{SECRETS_DIR} = {directory!r}: must be a directory that can be read"])
    try:
        settings = Settings(_secrets_dir=directory, **overrides)
    except UnreadableSource as error:
        raise SettingsError([f"{SECRETS_DIR} = {directory!r}: {error} ({error.__cause__})"]) from None
    except ValidationError as error:
        raise SettingsError([_explain(detail) for detail in error.errors()]) from None
    if conflicts := find_conflicts(settings):
        raise SettingsError(conflicts)
    return settings


def nearest(word: str) -> str | None:
    """The field that a misspelt word may mean; None if none is near."""
    return next(iter(get_close_matches(word.lower(), list(Settings.model_fields), n=1, cutoff=0.7)), None)


def _explain(error: ErrorDetails) -> str:
    cause = error.get("ctx", {}).get("error")
    field, kind = str(error["loc"][0]), error["type"]
    if kind == "extra_forbidden":
        near = nearest(field)
        return f"unknown setting {field}" + (f" (did you mean {near}?)" if near else "")
    if kind == "missing":
        return f"{label(field)} is not set: {Settings.model_fields[field].description}"
    value = "" if is_secret(field) else f" = {_printable(error['input'])}"
    return f"{label(field)}{value}: {cause or _ALLOWED.get(kind) or error['msg'].replace('Input should be', 'must be')}"


_ALLOWED = {
    "bool_parsing": "must be true or false",
    "string_pattern_mismatch": "must be a UUID",
    "path_not_file": "must be a file that can be read",
}


def _printable(value: object) -> str:
    """A value for a message: shortened, and without what may be the user name and password of a URL."""
    text = re.sub(r"^(.*?://|['\"]?).*@", r"\1…@", repr(value))
    return text if len(text) <= 100 else f"{text[:99]}…"


def find_conflicts(settings: Settings) -> list[str]:
    """One line for each setting that is valid by itself but not together with the others."""
    checks = (_bank_problems, _sasl_problems, _tls_problems, _limit_problems)
    return [problem for check in checks for problem in check(settings)]


def _bank_problems(settings: Settings) -> list[str]:
    if settings.dynamic_bank_id is False and settings.bank_id is None:
        return [f"{label('bank_id')} is not set: dynamic_bank_id = false needs the one bank's id"]
    return []


def _sasl_problems(settings: Settings) -> list[str]:
    protocol, mechanism = settings.kafka_security_protocol, settings.kafka_sasl_mechanism
    if not protocol.sasl:
        present = [name for name in _SASL_FIELDS if getattr(settings, name) is not None]
        return [
            f"{label(name)} is set: it needs kafka_security_protocol SASL_SSL or SASL_PLAINTEXT" for name in present
        ]
    if mechanism is None:
        return [f"{label('kafka_sasl_mechanism')} is not set: kafka_security_protocol = {protocol} needs it"]
    needed = _OAUTH_NEEDS if mechanism is SaslMechanism.OAUTHBEARER else _PASSWORD_NEEDS
    missing = [name for name in needed if getattr(settings, name) is None]
    return [f"{label(name)} is not set: kafka_sasl_mechanism = {mechanism} needs it" for name in missing]


def _tls_problems(settings: Settings) -> list[str]:
    if not settings.kafka_security_protocol.tls:
        present = [name for name in _TLS_FIELDS if getattr(settings, name) is not None]
        return [f"{label(name)} is set: it needs kafka_security_protocol SSL or SASL_SSL" for name in present]
    if settings.kafka_ssl_certfile is None and (settings.kafka_ssl_keyfile or settings.kafka_ssl_password):
        return [f"{label('kafka_ssl_certfile')} is not set: kafka_ssl_keyfile and kafka_ssl_password need it"]
    return []


def _limit_problems(settings: Settings) -> list[str]:
    problems = []
    for group in (_TOPICS, _GROUPS):
        names = [getattr(settings, field) for field in group]
        problems += [
            f"{label(field)} = {_printable(name)}: another of {', '.join(group)} has this name"
            for i, (field, name) in enumerate(zip(group, names, strict=True))
            if name in names[:i]
        ]
    for smaller, larger in (("drain_timeout", "shutdown_timeout"), ("retry_first_delay", "retry_max_delay")):
        low, high = getattr(settings, smaller), getattr(settings, larger)
        if low > high:
            problems.append(f"{label(smaller)} = {low:g}: must not exceed {larger} = {high:g}")
    return problems
