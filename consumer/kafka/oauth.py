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

from consumer.http import backends
from consumer.http.transport import Request, Response, Transport, TransportError
from consumer.settings.model import Settings

OpenTransport = Callable[[], AbstractAsyncContextManager[Transport]]

NO_TOKEN = "no token"  # noqa: S105 - a message
"""How the error message begins when no token was received."""
_LIFETIME = 300.0  # seconds, if the server does not say
_SHARE = 0.8  # of its lifetime; an older token is not used for a new connection


class ClientCredentials(AbstractTokenProvider):
    """Provides aiokafka with a token for each new connection. A token is reused for most of its lifetime.

    Args:
        open_transport: opens a transport for one request, since tokens are requested rarely.
        timeout: seconds for the request.
        now: seconds of a monotonic clock.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None,
        *,
        open_transport: OpenTransport,
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
        self._open_transport = open_transport
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = float("-inf")

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """From the settings, which are complete when the mechanism is OAUTHBEARER."""
        return cls(
            cast("str", settings.kafka_oauth_token_url),
            cast("str", settings.kafka_oauth_client_id),
            cast("SecretStr", settings.kafka_oauth_client_secret).get_secret_value(),
            settings.kafka_oauth_scope,
            open_transport=partial(backends.open_transport, settings.http_backend, 1),
            timeout=settings.health_timeout,
        )

    async def token(self) -> str:
        """Return a valid token.

        Raises:
            KafkaConnectionError: no token was received; aiokafka retries with its next connection.
        """
        async with self._lock:
            if self._now() >= self._renew_at:
                self._token, lifetime = await self._fetch()
                self._renew_at = self._now() + _SHARE * lifetime
            return self._token

    async def _fetch(self) -> tuple[str, float]:
        try:
            async with self._open_transport() as send:
                response = await send(self._request)
        except TransportError as error:
            raise KafkaConnectionError(
                f"{NO_TOKEN} from {self._request.url}: {str(error) or type(error).__name__}"
            ) from error
        try:
            return _token(response)
        except ValueError as error:
            raise KafkaConnectionError(f"{NO_TOKEN} from {self._request.url}: {error}") from None


def _token(response: Response) -> tuple[str, float]:
    """Token and lifetime in seconds. Errors do not quote the response: it can repeat the secret."""
    if response.status != 200:
        raise ValueError(f"status {response.status}")
    try:
        answer = json.loads(response.body)
    except ValueError:
        raise ValueError("the response is not JSON") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the response has no access_token")
    lifetime = answer.get("expires_in")
    return token, float(lifetime) if isinstance(lifetime, (int, float)) else _LIFETIME
