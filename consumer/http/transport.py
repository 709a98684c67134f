"""The HTTP seam. A client sends through a `Transport`; a test passes a function instead.

A `Transport` returns the server's response whatever its status, follows no redirect, or raises one of

    TransportError
    ├── ConnectError     no connection: refused, unknown host, TLS refused, proxy gone
    ├── RequestTimeout   no complete response within the request's timeout
    ├── ConnectionLost   the connection ended before the complete response was read
    └── ResponseTooLarge the body is larger than `MAX_BODY`
"""

import asyncio
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
        operation: the metric's label, from a closed list (`retain`, `recall`).
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 15.0
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


MAX_BODY = 32 * 1024 * 1024
"""Largest body of a response in bytes, after decompression; a `Transport` reads no further."""
PROXY_REFUSED = 407
"""Only a proxy answers with this status. The server never saw the request: a `Transport` raises `ConnectError`."""

Transport = Callable[[Request], Awaitable[Response]]


def limit_in_flight(transport: Transport, limit: int) -> Transport:
    """At most `limit` requests at once. The timeout of a request starts when its turn has come."""
    slots = asyncio.Semaphore(limit)

    async def limited(request: Request) -> Response:
        async with slots:
            return await transport(request)

    return limited


class TransportError(Exception):
    """No complete response arrived."""


class ConnectError(TransportError):
    """No connection: the server did not see the request."""


class RequestTimeout(TransportError):
    """The timeout expired: the server may have acted on the request."""


class ConnectionLost(TransportError):
    """The connection ended before the complete response was read: the server may have acted on the request."""


class ResponseTooLarge(TransportError):
    """The body is larger than `MAX_BODY`: the rest was not read."""

    def __init__(self) -> None:
        super().__init__(f"the response is larger than {MAX_BODY >> 20} MiB")


def base_url(url: str) -> str:
    """Normalise a base URL: no trailing slash, no query, no fragment; a base path is kept.

    Raises:
        ValueError: it is not an absolute http or https URL, or it holds a user name or password.
    """
    parts = urlsplit(url.strip())
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name or password in it is not accepted: the key has a setting of its own")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an absolute http:// or https:// URL")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


@lru_cache(1024)  # the same few banks come again and again
def quote_segment(text: str) -> str:
    """Percent-encode one path segment, slashes included."""
    return quote(text, safe="")
