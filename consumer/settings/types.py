"""The types of settings. An error message continues the sentence that a setting's name and value begin."""

import importlib.util
import json
import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints

from consumer.http.transport import base_url

PREFIX = "PAPERCLIP_MEMORY_"


def variable(field: str) -> str:
    """The name of a field's environment variable, and of its file in the secrets directory."""
    return PREFIX + field.upper()


def label(field: str) -> str:
    """A field and its variable, as messages name it."""
    return f"{field} ({variable(field)})"


class SecurityProtocol(StrEnum):
    """How clients connect to brokers."""

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
    """How clients authenticate to brokers."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class HttpBackend(StrEnum):
    """The library that sends HTTP requests."""

    HTTPX = "httpx"
    PYREQWEST = "pyreqwest"


class LogFormat(StrEnum):
    """The format of log lines."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The minimum level of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _url(value: str) -> str:
    try:
        url = base_url(value)
        _ = urlsplit(url).port  # raises on an invalid port
    except ValueError:
        raise ValueError("must be an absolute http:// or https:// URL, without user name and password") from None
    return url


def _endpoint(value: str) -> str:
    """Validated like a base URL, but kept unchanged."""
    _url(value)
    return value


def _bank(value: str) -> str:
    """Hindsight's limits on bank ids; it cannot address a `/`, not even percent-encoded."""
    fits = value.isprintable() and len(value.encode("utf-8", "surrogatepass")) <= 192
    if not fits or value.startswith("_") or "/" in value:
        raise ValueError("must be at most 192 bytes, without control characters, '/' or a leading '_'")
    return value


def _name(value: str) -> str:
    """Kafka's limits on topic names, applied to group names too."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        raise ValueError("must be 1 to 249 letters of A-Z a-z 0-9 . _ -")
    return value


def _servers(value: str) -> str:
    servers = [server.strip() for server in value.split(",")]
    for server in servers:
        if not re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^\s/:@]+)(:[0-9]{1,5})?", server):
            raise ValueError("must be host:port, or several separated by commas, without a scheme")
    return ",".join(servers)


def _items(value: object) -> object:
    """A list in a variable: JSON, or words separated by commas."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [item.strip() for item in value.split(",") if item.strip()]
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("must be a JSON list, or words separated by commas") from None


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


def _shared_secret(value: SecretStr) -> SecretStr:
    """It is sent as a Bearer token, and whoever guesses it can act as any agent."""
    if not re.fullmatch(r"[\x21-\x7e]{16,1024}", value.get_secret_value()):
        raise ValueError("must be 16 to 1024 visible ASCII characters, without blanks")
    return value


def _api_key(value: SecretStr) -> SecretStr:
    """A key from a file often ends with a line break, which a header cannot carry."""
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
