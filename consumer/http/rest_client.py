"""JSON over a `Transport`, with every failure mapped to the error tree. The Hindsight and Paperclip clients use it."""

import json
import time
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from consumer.errors import HandlingError, Upstream
from consumer.http.errors import classify, parse_date
from consumer.http.transport import Request, Response, Transport, TransportError
from consumer.upstream_success import record_success
from schemas.codec import loads

T = TypeVar("T")

Warn = Callable[..., None]

SMALLEST_SKEW = 2.0


def silent(_event: str, **_fields: str) -> None:
    """The default `warn`."""


_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make one for each request


class RestClient:
    """One upstream's API.

    Args:
        base: normalised by `consumer.http.transport.base_url`; a base path is kept.
        key: sent as Bearer; None sends none.
        timeout: seconds for a whole exchange.
        warn: tells the operator (event name and fields).

    Raises:
        ValueError: the key holds characters that a header cannot carry.
    """

    def __init__(
        self,
        send: Transport,
        base: str,
        upstream: Upstream,
        *,
        key: str | None,
        user_agent: str,
        timeout: float,
        warn: Warn = silent,
    ) -> None:
        self.upstream = upstream
        self._last_date = "", 0.0
        self._send = send
        self._base = base
        self._timeout = timeout
        self._warn = warn
        self._user_agent = user_agent
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if key:
            if not (key.isascii() and key.isprintable()):
                raise ValueError(f"the API key of {upstream} holds characters that an HTTP header cannot carry")
            self._headers["Authorization"] = f"Bearer {key}"
        self._json_headers = self._headers | {"Content-Type": "application/json"}

    def under(self, key: str) -> "RestClient":
        """The same API with another key.

        Raises:
            ValueError: the key holds characters that a header cannot carry.
        """
        return RestClient(
            self._send,
            self._base,
            self.upstream,
            key=key,
            user_agent=self._user_agent,
            timeout=self._timeout,
            warn=self._warn,
        )

    async def call(
        self,
        operation: StrEnum,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: Collection[int] = (),
        timeout: float | None = None,
    ) -> Response:
        """Send a request and return the response if its status is a 2xx or one of `accept`.

        Args:
            operation: the metric's label.
            path: what follows the base URL, percent-encoded.
            body: sent as ASCII JSON; None sends none.

        Raises:
            HandlingError: see `consumer.http.errors`.
        """
        sent = b"" if body is None else _encode(body).encode("ascii")
        headers = self._headers if body is None else self._json_headers
        request = Request(method, self._base + path, headers, sent, timeout or self._timeout, operation)
        try:
            response = await self._send(request)
        except TransportError as error:
            raise self.error(error, operation) from error
        self._last_date = response.headers.get("date", ""), time.time()
        if 200 <= response.status < 300 or response.status in accept:
            return response
        raise self.error(response, operation)

    @property
    def clock_skew(self) -> float:
        """Seconds that the server's clock is behind ours, by the `Date` of its last response; 0 if it sent none.

        Less than 2 s are 0: `Date` has whole seconds, and the response takes a while.
        """
        text, received = self._last_date
        date = parse_date(text)
        skew = 0.0 if date is None else received - date.timestamp()
        return skew if abs(skew) >= SMALLEST_SKEW else 0.0

    def read(self, response: Response, operation: StrEnum, parse: Callable[[Any], T]) -> T:
        """Parse a response's JSON.

        Args:
            parse: gets the decoded JSON; may raise any error that JSON of an unexpected shape causes.

        Raises:
            Transient: the body is not JSON or has an unexpected shape: a proxy's page, or another server.
        """
        try:
            value, too_deep = loads(response.body)
            parsed = parse(value)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self.error(response, operation) from None  # the cause's text can quote the body
        if too_deep:
            self._warn("a response is nested too deeply: deep values count as null", operation=str(operation))
        record_success(self.upstream)
        return parsed

    def error(self, answer: Response | TransportError, operation: StrEnum) -> HandlingError:
        """The error for a failed exchange with this upstream."""
        return classify(answer, self.upstream, f"{operation} at {self._base}", time.time())
