"""Tokens for SASL OAUTHBEARER, from the client credentials grant (RFC 6749, 4.4)."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Self, cast
from urllib.parse import quote_plus, urlencode

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from pydantic import SecretStr

from consumer.http.backends import open_transport
from consumer.http.transport import Request, Response, Transport, TransportError
from consumer.settings.model import Settings

OpenTransport = Callable[[], AbstractAsyncContextManager[Transport]]

NONE_TO_BE_HAD = "no token"
"""How an error begins that says why there is none."""
_LIFETIME = 300.0  # seconds, when the server does not say
_SHARE = 0.8  # of a lifetime, after which a token is too old for a new connection


class ClientCredentials(AbstractTokenProvider):
    """Gives aiokafka a token for each new connection; one token serves until most of its lifetime is over.

    Args:
        open_send: opens a sender, for one request; tokens are rare.
        timeout: seconds for the request.
        now: seconds on a clock that never goes back.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None,
        *,
        open_send: OpenTransport,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        basic = b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()
        self._request = Request(
            "POST",
            url,
            {
                "authorization": f"Basic {basic}",
                "content-type": "application/x-www-form-urlencoded",
                "accept": "application/json",
            },
            urlencode(form).encode(),
            timeout,
        )
        self._open_send = open_send
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._old_at = float("-inf")

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings ask; they are checked to hold all of it when the mechanism is OAUTHBEARER."""
        return cls(
            cast("str", settings.kafka_oauth_token_url),
            cast("str", settings.kafka_oauth_client_id),
            cast("SecretStr", settings.kafka_oauth_client_secret).get_secret_value(),
            settings.kafka_oauth_scope,
            open_send=partial(open_transport, settings.http_backend, 1),
            timeout=settings.health_timeout,
        )

    async def token(self) -> str:
        """A token that is good for a while.

        Raises:
            KafkaConnectionError: there is none now; aiokafka tries again with its next connection.
        """
        async with self._lock:
            if self._now() >= self._old_at:
                self._token, lifetime = await self._fetch()
                self._old_at = self._now() + _SHARE * lifetime
            return self._token

    async def _fetch(self) -> tuple[str, float]:
        try:
            async with self._open_send() as send:
                reply = await send(self._request)
        except TransportError as error:
            raise KafkaConnectionError(
                f"{NONE_TO_BE_HAD} from {self._request.url}: {str(error) or type(error).__name__}"
            ) from error
        try:
            return _token(reply)
        except ValueError as error:
            raise KafkaConnectionError(f"{NONE_TO_BE_HAD} from {self._request.url}: {error}") from None


def _token(reply: Response) -> tuple[str, float]:
    """Token and lifetime in seconds. What the server says besides is not shown: it may repeat our secret."""
    if reply.status != 200:
        raise ValueError(f"status {reply.status}")
    try:
        answer = json.loads(reply.body)
    except ValueError:
        raise ValueError("the reply is no JSON") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the reply has no access_token")
    lifetime = answer.get("expires_in")
    return token, float(lifetime) if isinstance(lifetime, (int, float)) else _LIFETIME
