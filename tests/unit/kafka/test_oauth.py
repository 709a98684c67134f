import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiokafka.errors import KafkaConnectionError

from consumer.http.transport import ConnectError, Request, RequestTimeout, Response, Transport, TransportError
from consumer.kafka.oauth import ClientCredentials
from consumer.settings.model import Settings

SECRET = "se:same &ü"
URL = "https://idp.example.org/token"


class Server:
    """Answers with what it was told; every sender that was opened must be closed."""

    def __init__(self, *answers: Response | TransportError) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.opened = 0
        self.now = 0.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transport]:
        self.opened += 1

        async def send(request: Request) -> Response:
            self.asked.append(request)
            await asyncio.sleep(0)
            answer = self.answers.pop(0)
            if isinstance(answer, TransportError):
                raise answer
            return answer

        try:
            yield send
        finally:
            self.opened -= 1

    def credentials(self, scope: str | None = None) -> ClientCredentials:
        return ClientCredentials(URL, "us", SECRET, scope, open_transport=self.open, timeout=5.0, now=lambda: self.now)


def ok(**answer: Any) -> Response:
    return Response(200, {}, json.dumps(answer).encode())


async def test_token_request_follows_rfc_6749() -> None:
    server = Server(ok(access_token="t", expires_in=60))
    assert await server.credentials(scope="kafka read").token() == "t"
    [request] = server.asked
    assert (request.method, request.url, request.timeout) == ("POST", URL, 5.0)
    assert parse_qs(request.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    kind, basic = request.headers["authorization"].split()
    assert (kind, b64decode(basic)) == ("Basic", b"us:se%3Asame+%26%C3%BC")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert server.opened == 0


async def test_scope_is_omitted_when_unset() -> None:
    server = Server(ok(access_token="t"))
    await server.credentials().token()
    assert server.asked[0].body == b"grant_type=client_credentials"


async def test_token_is_reused_for_most_of_its_lifetime() -> None:
    server = Server(ok(access_token="first", expires_in=100), ok(access_token="second", expires_in=100))
    credentials = server.credentials()
    seen = []
    for server.now in (0.0, 79.9, 80.0, 159.0):
        seen.append(await credentials.token())
    assert seen == ["first", "first", "second", "second"]


async def test_token_without_a_lifetime_is_reused_for_minutes() -> None:
    server = Server(ok(access_token="first"), ok(access_token="second", expires_in="soon"))
    credentials = server.credentials()
    seen = []
    for server.now in (0.0, 239.0, 240.0, 479.0):
        seen.append(await credentials.token())
    assert seen == ["first", "first", "second", "second"]


async def test_concurrent_connections_share_one_token_request() -> None:
    server = Server(ok(access_token="t", expires_in=100))
    credentials = server.credentials()
    assert await asyncio.gather(*(credentials.token() for _ in range(5))) == ["t"] * 5
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Response(401, {}, b'{"error_description": "se:same is wrong"}'), "status 401"),
        (Response(302, {"location": "/login"}, b""), "status 302"),
        (Response(200, {}, b"<html>"), "the response is not JSON"),
        (Response(200, {}, b"[]"), "the response has no access_token"),
        (ok(token="t"), "the response has no access_token"),
        (ok(access_token=""), "the response has no access_token"),
        (ok(access_token=7), "the response has no access_token"),
        (ConnectError("connection refused"), "connection refused"),
        (RequestTimeout(), "RequestTimeout"),
    ],
)
async def test_missing_token_is_an_error_that_aiokafka_retries(answer: Response | TransportError, reason: str) -> None:
    server = Server(answer, ok(access_token="t"))
    credentials = server.credentials()
    with pytest.raises(KafkaConnectionError) as caught:
        await credentials.token()
    assert f"no token from {URL}: {reason}" in str(caught.value)
    assert "se:same" not in str(caught.value)
    assert server.opened == 0
    assert await credentials.token() == "t"


async def test_credentials_come_from_the_settings() -> None:
    settings = Settings(
        hindsight_api_url="http://localhost:8888",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="OAUTHBEARER",
        kafka_oauth_token_url="http://127.0.0.1:1/token",
        kafka_oauth_client_id="us",
        kafka_oauth_client_secret="sesame",
        kafka_oauth_scope="kafka",
    )
    with pytest.raises(KafkaConnectionError, match=r"no token from http://127\.0\.0\.1:1/token: "):
        await ClientCredentials.of(settings).token()
