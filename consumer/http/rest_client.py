"""What the clients of Hindsight and of Paperclip have in common: JSON over a `Send`, each failure in the error tree."""

import json
import time
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from consumer.errors import HandlingError, Upstream
from consumer.http.errors import classify
from consumer.http.transport import Reply, Request, Send, SendError
from consumer.upstream_success import answered

T = TypeVar("T")

_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make one for each request


class Rest:
    """One upstream's API.

    Args:
        base: normalised by `consumer.http.transport.base_url`; a base path is kept.
        key: sent as Bearer; None sends none.
        timeout: seconds for a whole exchange.

    Raises:
        ValueError: the key holds what no header can carry.
    """

    def __init__(
        self, send: Send, base: str, upstream: Upstream, *, key: str | None, user_agent: str, timeout: float
    ) -> None:
        self.upstream = upstream
        self._send = send
        self._base = base
        self._timeout = timeout
        self._user_agent = user_agent
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if key:
            if not (key.isascii() and key.isprintable()):
                raise ValueError(f"the API key of {upstream} holds characters that no HTTP header can carry")
            self._headers["Authorization"] = f"Bearer {key}"
        self._json_headers = self._headers | {"Content-Type": "application/json"}

    def under(self, key: str) -> "Rest":
        """The same API, under another key.

        Raises:
            ValueError: the key holds what no header can carry.
        """
        return Rest(self._send, self._base, self.upstream, key=key, user_agent=self._user_agent, timeout=self._timeout)

    async def call(
        self,
        operation: StrEnum,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: Collection[int] = (),
        timeout: float | None = None,
    ) -> Reply:
        """Ask, and return the reply if its status is a 2xx or one of `accept`.

        Args:
            operation: the metric's label.
            path: what follows the base URL, percent-encoded.
            body: sent as ASCII JSON; None sends none.

        Raises:
            HandlingError: as `consumer.http.errors` says.
        """
        sent = b"" if body is None else _encode(body).encode("ascii")
        headers = self._headers if body is None else self._json_headers
        request = Request(method, self._base + path, headers, sent, timeout or self._timeout, operation)
        try:
            reply = await self._send(request)
        except SendError as error:
            raise self.error(error, operation) from error
        if 200 <= reply.status < 300 or reply.status in accept:
            return reply
        raise self.error(reply, operation)

    def read(self, reply: Reply, operation: StrEnum, parse: Callable[[Any], T]) -> T:
        """Make of a reply's JSON what it stands for.

        Args:
            parse: may raise whatever comes of JSON of another shape.

        Raises:
            Transient: the body is not JSON, or not what was promised: a proxy's page, or another server.
        """
        try:
            parsed = parse(json.loads(reply.body))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self.error(reply, operation) from None  # the cause's text can quote the body
        answered(self.upstream)
        return parsed

    def error(self, answer: Reply | SendError, operation: StrEnum) -> HandlingError:
        """The error that an answer of this upstream amounts to."""
        return classify(answer, self.upstream, f"{operation} at {self._base}", time.time())
