"""Paperclip's word on a bearer: asked for once, kept for a while, and never made up."""

import asyncio

import pytest

from consumer.errors import HandlingError, UpstreamDown
from consumer.http.transport import Response
from consumer.tools.authenticator import LIMIT, Callers, _Remembered
from consumer.tools.credentials import Agent, Claims, Refused
from tests.unit.tools.office import ADA, BEN, COMPANY, KEY, SECRET, Paperclip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def paperclip() -> Paperclip:
    return Paperclip()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def callers(paperclip: Paperclip, clock: Clock) -> Callers:
    return Callers(SECRET, paperclip.client.with_key, 30.0, clock)


async def test_a_key_is_asked_about_once_and_again_after_a_while(
    callers: Callers, paperclip: Paperclip, clock: Clock
) -> None:
    for _ in range(3):
        assert await callers.identify(Claims(KEY[ADA])) == Agent(COMPANY, ADA, bearer=KEY[ADA])
    assert paperclip.asked == [(KEY[ADA], "/api/agents/me")]
    del paperclip.owners[KEY[ADA]]
    clock.now = 29.9
    assert (await callers.identify(Claims(KEY[ADA]))).agent == ADA
    clock.now = 30.1
    with pytest.raises(Refused, match="does not know your key"):
        await callers.identify(Claims(KEY[ADA]))


async def test_a_refusal_is_kept_as_long(callers: Callers, paperclip: Paperclip, clock: Clock) -> None:
    for _ in range(3):
        with pytest.raises(Refused, match="does not know your key"):
            await callers.identify(Claims("expired"))
    assert len(paperclip.asked) == 1
    paperclip.owners["expired"] = (COMPANY, BEN)
    clock.now = 30.1
    assert (await callers.identify(Claims("expired"))).agent == BEN


async def test_many_calls_at_once_ask_once(callers: Callers, paperclip: Paperclip) -> None:
    found = await asyncio.gather(*(callers.identify(Claims(KEY[ADA])) for _ in range(50)))
    assert {each.agent for each in found} == {ADA}
    assert len(paperclip.asked) == 1


async def test_a_caller_that_gives_up_takes_no_other_with_it(callers: Callers, paperclip: Paperclip) -> None:
    paperclip.hangs = True
    first, second = (asyncio.create_task(callers.identify(Claims(KEY[ADA]))) for _ in range(2))
    await asyncio.wait([first, second], timeout=0.05)
    assert len(paperclip.asked) == 1
    first.cancel()
    await asyncio.wait([first])
    assert not second.done()
    second.cancel()


async def test_while_paperclip_is_down_nobody_is_refused_and_nothing_is_kept(
    callers: Callers, paperclip: Paperclip
) -> None:
    paperclip.down = True
    for _ in range(2):
        with pytest.raises(UpstreamDown):
            await callers.identify(Claims(KEY[ADA]))
    assert len(paperclip.asked) == 2
    paperclip.down = False
    assert (await callers.identify(Claims(KEY[ADA]))).agent == ADA


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
    paperclip: Paperclip, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, refused: bool
) -> None:
    monkeypatch.setattr(paperclip, "_answer", lambda *_: Response(status, {}, body))
    callers = Callers(None, paperclip.client.with_key, 30.0)
    with pytest.raises(Refused if refused else HandlingError):
        await callers.identify(Claims(KEY[ADA]))


async def test_the_gateway_is_not_asked_about(callers: Callers, paperclip: Paperclip) -> None:
    assert callers.is_gateway(Claims(SECRET))
    assert await callers.identify(Claims(SECRET, COMPANY, ADA)) == Agent(COMPANY, ADA)
    assert paperclip.asked == []


async def test_without_a_paperclip_api_only_the_gateway_is_believed() -> None:
    callers = Callers(SECRET, None, 30.0)
    assert (await callers.identify(Claims(SECRET, COMPANY, ADA))).agent == ADA
    with pytest.raises(Refused, match="knows no Paperclip"):
        await callers.identify(Claims(KEY[ADA], COMPANY, ADA))


async def test_a_flood_of_wrong_keys_is_bounded_and_pushes_no_good_one_out(
    callers: Callers, paperclip: Paperclip
) -> None:
    await callers.identify(Claims(KEY[ADA]))
    for number in range(LIMIT + 50):
        with pytest.raises(Refused):
            await callers.identify(Claims(f"guess-{number}"))
    assert len(callers._refused._values) == LIMIT
    asked = len(paperclip.asked)
    await callers.identify(Claims(KEY[ADA]))
    assert len(paperclip.asked) == asked


def test_what_has_expired_is_let_go(clock: Clock) -> None:
    remembered: _Remembered[str] = _Remembered(10.0, 100, clock)
    for second in range(60):
        clock.now = float(second)
        remembered.put(b"%d" % second, "x")
    assert len(remembered._values) == 10
    assert remembered.get(b"59") == "x"
    assert remembered.get(b"40") is None
