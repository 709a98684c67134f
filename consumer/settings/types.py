"""The kinds of value that settings have, each with what it allows. A refusal reads on from name and value."""

import importlib.util
import json
import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints

from consumer.http.transport import base_url


class SecurityProtocol(StrEnum):
    """How brokers are reached."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def sasl(self) -> bool:
        return self.startswith("SASL_")

    @property
    def tls(self) -> bool:
        return self.endswith("SSL")


class SaslMechanism(StrEnum):
    """How we prove to brokers who we are."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class HttpBackend(StrEnum):
    """Which library sends HTTP requests."""

    HTTPX = "httpx"
    PYREQWEST = "pyreqwest"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least severe log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _url(value: str) -> str:
    try:
        url = base_url(value)
        _ = urlsplit(url).port  # raises on a port that is none
    except ValueError:
        raise ValueError("must be an absolute http:// or https:// URL, without user name and password") from None
    return url


def _endpoint(value: str) -> str:
    """Checked like a base URL, and kept to the letter."""
    _url(value)
    return value


def _bank(value: str) -> str:
    """Hindsight's limits on bank ids; a `/` cannot be addressed, not even percent-encoded."""
    fits = value.isprintable() and len(value.encode("utf-8", "surrogatepass")) <= 192
    if not fits or value.startswith("_") or "/" in value:
        raise ValueError("must be at most 192 bytes, without control characters, '/' or a leading '_'")
    return value


def _name(value: str) -> str:
    """Kafka's limits on topic names; group names keep to them too."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        raise ValueError("must be 1 to 249 letters of A-Z a-z 0-9 . _ -")
    return value


def _servers(value: str) -> str:
    servers = [server.strip() for server in value.split(",")]
    for server in servers:
        if not re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^\s/:@]+)(:[0-9]{1,5})?", server):
            raise ValueError("must be host:port, or several of them with commas between, without a scheme")
    return ",".join(servers)


def _items(value: object) -> object:
    """A list as JSON or with commas between, as variables hold it."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [item.strip() for item in value.split(",") if item.strip()]
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("must be a JSON list, or words with commas between") from None


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


def _shared_secret(value: SecretStr) -> SecretStr:
    """It travels as a Bearer, and whoever guesses it speaks for every agent."""
    if not re.fullmatch(r"[\x21-\x7e]{16,1024}", value.get_secret_value()):
        raise ValueError("must be 16 to 1024 visible ASCII characters, without blanks")
    return value


def _api_key(value: SecretStr) -> SecretStr:
    """A key that came from a file often has a line break at its end; no header can carry one."""
    key = value.get_secret_value().strip()
    if not re.fullmatch(r"[\x20-\x7e]+", key):
        raise ValueError("must be printable ASCII characters: an HTTP header cannot carry others")
    return SecretStr(key)


def _start(value: str) -> str:
    word = value.strip().lower()
    if word in ("now", "beginning"):
        return word
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("must be now, beginning, or a time like 2026-11-30T10:00:00Z") from None
    return time.isoformat()


def _backend(backend: HttpBackend) -> HttpBackend:
    needed = ("pyreqwest", "uvloop") if backend is HttpBackend.PYREQWEST else ()
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise ValueError("is not installed: pip install 'paperclip-memory[fast]'")
    return backend


Text = Annotated[str, StringConstraints(strip_whitespace=True)]
Url = Annotated[str, AfterValidator(_url)]
Endpoint = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_endpoint)]
Name = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_name)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]
InFlight = Annotated[int, Field(ge=1, le=10_000)]
Decoded = BeforeValidator(_items)
Lower = BeforeValidator(_lower)
Upper = BeforeValidator(_upper)
Bank = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_bank)]
ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]
SharedSecret = Annotated[SecretStr, AfterValidator(_shared_secret)]
Servers = Annotated[str, AfterValidator(_servers)]
Start = Annotated[str, AfterValidator(_start)]
Backend = Annotated[HttpBackend, Lower, AfterValidator(_backend)]
