"""Authentication by key: Paperclip is asked once, its answer is cached, and a failure is never cached."""

import asyncio

import pytest

from consumer.errors import HandlingError, UpstreamDown
from consumer.http.transport import Response
from consumer.tools.authenticator import CACHE_SIZE, MAX_LOOKUPS, NEW_KEY_LOOKUPS, Authenticator
from consumer.tools.credentials import Agent, Claims, ToolError
from tests.support.tools_fixture import ADA, BEN, COMPANY, KEY, SECRET, FakePaperclip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def paperclip() -> FakePaperclip:
    return FakePaperclip()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authenticator(paperclip: FakePaperclip, clock: Clock) -> Authenticator:
    return Authenticator(SECRET, paperclip.client.with_key, 30.0, clock)


async def test_a_known_key_is_cached_until_the_ttl_ends(
    authenticator: Authenticator, paperclip: FakePaperclip, clock: Clock
) -> None:
    for _ in range(3):
        assert await authenticator.authenticate(Claims(KEY[ADA])) == Agent(COMPANY, ADA, bearer=KEY[ADA])
    assert paperclip.requests == [(KEY[ADA], "/api/agents/me")]
    del paperclip.owners[KEY[ADA]]
    clock.now = 29.9
    assert (await authenticator.authenticate(Claims(KEY[ADA]))).agent == ADA
    clock.now = 30.1
    with pytest.raises(ToolError, match="does not know your key"):
        await authenticator.authenticate(Claims(KEY[ADA]))


async def test_a_refused_key_is_cached_until_the_ttl_ends(
    authenticator: Authenticator, paperclip: FakePaperclip, clock: Clock
) -> None:
    for _ in range(3):
        with pytest.raises(ToolError, match="does not know your key"):
            await authenticator.authenticate(Claims("pcp_expired"))
    assert len(paperclip.requests) == 1
    paperclip.owners["pcp_expired"] = (COMPANY, BEN)
    clock.now = 30.1
    assert (await authenticator.authenticate(Claims("pcp_expired"))).agent == BEN


async def test_concurrent_calls_with_one_key_share_one_lookup(
    authenticator: Authenticator, paperclip: FakePaperclip
) -> None:
    agents = await asyncio.gather(*(authenticator.authenticate(Claims(KEY[ADA])) for _ in range(50)))
    assert {agent.agent for agent in agents} == {ADA}
    assert len(paperclip.requests) == 1


async def test_a_cancelled_call_does_not_cancel_the_shared_lookup(
    authenticator: Authenticator, paperclip: FakePaperclip
) -> None:
    paperclip.hangs = True
    first, second = (asyncio.create_task(authenticator.authenticate(Claims(KEY[ADA]))) for _ in range(2))
    await asyncio.wait([first, second], timeout=0.05)
    assert len(paperclip.requests) == 1
    first.cancel()
    await asyncio.wait([first])
    assert not second.done()
    second.cancel()


async def test_while_paperclip_is_down_the_lookup_raises_and_is_not_cached(
    authenticator: Authenticator, paperclip: FakePaperclip
) -> None:
    paperclip.down = True
    for _ in range(2):
        with pytest.raises(UpstreamDown):
            await authenticator.authenticate(Claims(KEY[ADA]))
    assert len(paperclip.requests) == 2
    paperclip.down = False
    assert (await authenticator.authenticate(Claims(KEY[ADA]))).agent == ADA


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (401, b'{"error":"Agent authentication required"}', True),
        (403, b'{"error":"denied"}', True),
        (403, b'{"error":"gone","code":"RESPONSIBLE_USER_UNAVAILABLE"}', True),
        (404, b'{"error":"Agent not found"}', True),
        (422, b'{"error":"no"}', True),
        (404, b"<html>nothing here</html>", False),
        (429, b"{}", False),
        (500, b'{"error":"Internal server error"}', False),
        (502, b"Bad gateway", False),
        (200, b"<html>log in</html>", False),
        (200, b'{"id":"x","companyId":"y"}', False),
        (200, b'{"id":null,"companyId":null}', False),
    ],
)
async def test_paperclips_response_refuses_the_key_or_raises(
    paperclip: FakePaperclip, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, refused: bool
) -> None:
    monkeypatch.setattr(paperclip, "_answer", lambda *_: Response(status, {}, body))
    authenticator = Authenticator(None, paperclip.client.with_key, 30.0)
    with pytest.raises(ToolError if refused else HandlingError):
        await authenticator.authenticate(Claims(KEY[ADA]))


async def test_the_gateways_secret_needs_no_lookup(authenticator: Authenticator, paperclip: FakePaperclip) -> None:
    assert authenticator.is_gateway(Claims(SECRET))
    assert await authenticator.authenticate(Claims(SECRET, COMPANY, ADA)) == Agent(COMPANY, ADA)
    assert paperclip.requests == []


async def test_without_a_paperclip_api_only_the_gateway_is_authenticated() -> None:
    authenticator = Authenticator(SECRET, None, 30.0)
    assert (await authenticator.authenticate(Claims(SECRET, COMPANY, ADA))).agent == ADA
    with pytest.raises(ToolError, match="no Paperclip API is configured"):
        await authenticator.authenticate(Claims(KEY[ADA], COMPANY, ADA))


async def test_many_wrong_keys_do_not_evict_a_valid_one(authenticator: Authenticator, paperclip: FakePaperclip) -> None:
    await authenticator.authenticate(Claims(KEY[ADA]))
    for number in range(CACHE_SIZE + 50):
        with pytest.raises(ToolError):
            await authenticator.authenticate(Claims(f"pcp_guess_{number}"))
    lookups = len(paperclip.requests)
    await authenticator.authenticate(Claims(KEY[ADA]))
    assert len(paperclip.requests) == lookups


@pytest.mark.parametrize(
    "bearer", ["guess", "key.with.three.dots", "pmg1.c.00", "ghp_abc", "pcp_", "a.b.c/d", "x" * 8192]
)
async def test_a_bearer_without_the_form_of_a_paperclip_key_is_refused_without_a_lookup(
    authenticator: Authenticator, paperclip: FakePaperclip, bearer: str
) -> None:
    with pytest.raises(ToolError, match="does not know your key"):
        await authenticator.authenticate(Claims(bearer))
    assert paperclip.requests == []


async def test_a_thousand_unknown_keys_do_not_delay_a_verified_one(
    authenticator: Authenticator, paperclip: FakePaperclip, clock: Clock
) -> None:
    await authenticator.authenticate(Claims(KEY[ADA]))
    clock.now = 30.1  # the cached answer has expired
    paperclip.hangs = True
    guesses = [asyncio.create_task(authenticator.authenticate(Claims(f"pcp_guess_{number}"))) for number in range(1100)]
    await asyncio.sleep(0.05)
    assert len(paperclip.requests) == 1 + NEW_KEY_LOOKUPS
    refused = [guess.exception() for guess in guesses if guess.done()]
    assert [error.status for error in refused if isinstance(error, ToolError)] == [503] * (1100 - MAX_LOOKUPS)
    paperclip.hangs = False
    async with asyncio.timeout(1):
        assert (await authenticator.authenticate(Claims(KEY[ADA]))).agent == ADA
    for guess in guesses:
        guess.cancel()
    await asyncio.wait(guesses)
