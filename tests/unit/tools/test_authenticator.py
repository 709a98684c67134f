"""Paperclip's word on a bearer: asked for once, kept for a while, and never made up."""

import asyncio

import pytest

from consumer.errors import HandlingError, UpstreamDown
from consumer.http.transport import Reply
from consumer.tools.authenticator import CACHE_SIZE, Authenticator, _Remembered
from consumer.tools.credentials import Agent, Claims, ToolError
from tests.support.tools_fixture import ADA, BEN, COMPANY, KEY, SECRET, FakePaperclip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def paperclip() -> Paperclip:
    return FakePaperclip()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authenticator(paperclip: FakePaperclip, clock: Clock) -> Authenticator:
    return Authenticator(SECRET, paperclip.client.with_key, 30.0, clock)


async def test_a_key_is_asked_about_once_and_again_after_a_while(
    authenticator: Authenticator, paperclip: FakePaperclip, clock: Clock
) -> None:
    for _ in range(3):
        assert await authenticator.authenticate(Claims(KEY[ADA])) == Agent(COMPANY, ADA, bearer=KEY[ADA])
    assert paperclip.asked == [(KEY[ADA], "/api/agents/me")]
    del paperclip.owners[KEY[ADA]]
    clock.now = 29.9
    assert (await authenticator.authenticate(Claims(KEY[ADA]))).agent == ADA
    clock.now = 30.1
    with pytest.raises(ToolError, match="does not know your key"):
        await authenticator.authenticate(Claims(KEY[ADA]))


async def test_a_refusal_is_kept_as_long(authenticator: Authenticator, paperclip: FakePaperclip, clock: Clock) -> None:
    for _ in range(3):
        with pytest.raises(ToolError, match="does not know your key"):
            await authenticator.authenticate(Claims("expired"))
    assert len(paperclip.asked) == 1
    paperclip.owners["expired"] = (COMPANY, BEN)
    clock.now = 30.1
    assert (await authenticator.authenticate(Claims("expired"))).agent == BEN


async def test_many_calls_at_once_ask_once(authenticator: Authenticator, paperclip: FakePaperclip) -> None:
    found = await asyncio.gather(*(authenticator.authenticate(Claims(KEY[ADA])) for _ in range(50)))
    assert {each.agent for each in found} == {ADA}
    assert len(paperclip.asked) == 1


async def test_a_caller_that_gives_up_takes_no_other_with_it(authenticator: Authenticator, paperclip: FakePaperclip) -> None:
    paperclip.hangs = True
    first, second = (asyncio.create_task(authenticator.authenticate(Claims(KEY[ADA]))) for _ in range(2))
    await asyncio.wait([first, second], timeout=0.05)
    assert len(paperclip.asked) == 1
    first.cancel()
    await asyncio.wait([first])
    assert not second.done()
    second.cancel()


async def test_while_paperclip_is_down_nobody_is_refused_and_nothing_is_kept(
    authenticator: Authenticator, paperclip: FakePaperclip
) -> None:
    paperclip.down = True
    for _ in range(2):
        with pytest.raises(UpstreamDown):
            await authenticator.authenticate(Claims(KEY[ADA]))
    assert len(paperclip.asked) == 2
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
async def test_what_each_answer_of_paperclip_means(
    paperclip: FakePaperclip, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, refused: bool
) -> None:
    monkeypatch.setattr(paperclip, "_answer", lambda *_: Reply(status, {}, body))
    authenticator = Authenticator(None, paperclip.client.with_key, 30.0)
    with pytest.raises(ToolError if refused else HandlingError):
        await authenticator.authenticate(Claims(KEY[ADA]))


async def test_the_gateway_is_not_asked_about(authenticator: Authenticator, paperclip: FakePaperclip) -> None:
    assert authenticator.is_gateway(Claims(SECRET))
    assert await authenticator.authenticate(Claims(SECRET, COMPANY, ADA)) == Agent(COMPANY, ADA)
    assert paperclip.asked == []


async def test_without_a_paperclip_api_only_the_gateway_is_believed() -> None:
    authenticator = Authenticator(SECRET, None, 30.0)
    assert (await authenticator.authenticate(Claims(SECRET, COMPANY, ADA))).agent == ADA
    with pytest.raises(ToolError, match="knows no Paperclip"):
        await authenticator.authenticate(Claims(KEY[ADA], COMPANY, ADA))


async def test_a_flood_of_wrong_keys_is_bounded_and_pushes_no_good_one_out(
    authenticator: Authenticator, paperclip: FakePaperclip
) -> None:
    await authenticator.authenticate(Claims(KEY[ADA]))
    for number in range(CACHE_SIZE + 50):
        with pytest.raises(ToolError):
            await authenticator.authenticate(Claims(f"guess-{number}"))
    assert len(authenticator._refused._values) == LIMIT
    asked = len(paperclip.asked)
    await authenticator.authenticate(Claims(KEY[ADA]))
    assert len(paperclip.asked) == asked


def test_what_has_expired_is_let_go(clock: Clock) -> None:
    remembered: _Remembered[str] = _Remembered(10.0, 100, clock)
    for second in range(60):
        clock.now = float(second)
        remembered.put(b"%d" % second, "x")
    assert len(remembered._values) == 10
    assert remembered.get(b"59") == "x"
    assert remembered.get(b"40") is None
