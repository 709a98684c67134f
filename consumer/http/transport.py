"""The one HTTP seam. Clients are built on a `Send`; tests pass a function and patch nothing.

A `Send` answers with the reply the server gave, whatever its status (redirects are not followed), or raises one of

    SendError
    ├── Unreachable     no connection: refused, unknown host, TLS refused, proxy gone
    ├── TimedOut        no whole reply within the request's timeout
    └── Broken          the connection ended before the whole reply was read
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    Attributes:
        url: absolute, already percent-encoded; sent as it is.
        timeout: seconds for the whole exchange, from connect to the last byte.
        operation: a short closed name of what is asked (`retain`, `recall`); the metric's label.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 15.0
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


PROXY_REFUSED = 407
"""What only a proxy answers; the server never saw the request, so a `Send` raises `Unreachable` for it."""

Send = Callable[[Request], Awaitable[Reply]]


class SendError(Exception):
    """No whole reply came."""


class Unreachable(SendError):
    """There was no connection: the server did not see the request."""


class TimedOut(SendError):
    """Time ran out: the server may have acted on the request."""


class Broken(SendError):
    """The connection ended before the whole reply was read: the server may have acted on the request."""


def base_url(url: str) -> str:
    """Normalise a base URL: no trailing slash, no query, no fragment; a base path is kept.

    Raises:
        ValueError: it is not an absolute http or https URL, or it holds a user name or password.
    """
    parts = urlsplit(url.strip())
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name or password in it is not taken: the key has a setting of its own")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an absolute http:// or https:// URL")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


@lru_cache(1024)  # the same few banks come again and again
def segment(text: str) -> str:
    """Percent-encode one path segment; nothing is left bare that could end the segment."""
    return quote(text, safe="")
