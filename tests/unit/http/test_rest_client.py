import json
import traceback
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum
from typing import Any

import pytest

from consumer.errors import Permanent, Transient, Upstream, UpstreamDown
from consumer.http.rest_client import RestClient
from consumer.http.transport import ConnectionLost
from schemas.codec import encode
from tests.unit.http.scripted import Scripted, answer

BASE = "https://h.example/base"


class Operation(StrEnum):
    ASK = "ask"


def rest(send: Scripted, key: str | None = "s3cret") -> RestClient:
    return RestClient(send, BASE, Upstream.HINDSIGHT, key=key, user_agent="paperclip-memory/1.2.3", timeout=15)


async def test_request_with_a_body_is_ascii_json() -> None:
    send = Scripted([answer(200)])
    await rest(send).call(Operation.ASK, "POST", "/v1/x", {"text": "é\ud83d", "n": 1})
    (request,) = send.asked
    assert (request.method, request.url, request.timeout, request.operation) == ("POST", BASE + "/v1/x", 15, "ask")
    assert request.body == b'{"text":"\\u00e9\\ud83d","n":1}'
    assert request.headers == {
        "User-Agent": "paperclip-memory/1.2.3",
        "Accept": "application/json",
        "Authorization": "Bearer s3cret",
        "Content-Type": "application/json",
    }


async def test_request_without_body_and_key_has_neither_header() -> None:
    send = Scripted([answer(204)])
    await rest(send, key=None).call(Operation.ASK, "GET", "/v1/x", timeout=5)
    (request,) = send.asked
    assert (request.body, request.timeout) == (b"", 5)
    assert request.headers == {"User-Agent": "paperclip-memory/1.2.3", "Accept": "application/json"}


@pytest.mark.parametrize("key", ["two\nlines", "tab\t", "schlüssel"])
def test_key_that_a_header_cannot_carry_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="API key of hindsight") as caught:
        rest(Scripted([]), key=key)
    assert key not in str(caught.value)


async def test_accepted_statuses_return_and_others_raise() -> None:
    send = Scripted([answer(404, b"x"), answer(422, {"detail": []}), answer(401), ConnectionLost("reset")])
    asking = rest(send)
    assert (await asking.call(Operation.ASK, "GET", "/", accept=(404,))).body == b"x"
    for error in (Permanent, UpstreamDown, Transient):
        with pytest.raises(error, match=f"ask at {BASE}") as caught:
            await asking.call(Operation.ASK, "GET", "/", accept=(404,))
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>hush-hush</html>",
        b"",
        b"\xff",
        b"null",
        b"[]",
        b'{"b":"hush-hush"}',
        b'{"a":"hush-hush"}',
        b"[" * 100_000,
    ],
)
async def test_unexpected_body_is_transient_and_not_quoted(body: bytes) -> None:
    def parse(value: Any) -> int:
        return int(value["a"])

    with pytest.raises(Transient, match="the body is not Hindsight's") as caught:
        rest(Scripted([])).read(answer(200, body), Operation.ASK, parse)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_expected_body_is_parsed() -> None:
    assert rest(Scripted([])).read(answer(200, {"a": 1}), Operation.ASK, lambda value: value["a"]) == 1


def test_lone_surrogates_are_read() -> None:
    body = json.dumps({"a": "\ud83d"}).encode()
    assert rest(Scripted([])).read(answer(200, body), Operation.ASK, lambda value: value["a"]) == "\ud83d"


async def test_a_response_nested_too_deeply_is_read_and_the_operator_warned() -> None:
    warnings: list[tuple[str, dict[str, str]]] = []
    deep = b'[{"id": 1, "metadata": ' + b"[" * 1_100 + b"]" * 1_100 + b"}, {}]"
    client = RestClient(
        Scripted([]),
        BASE,
        Upstream.HINDSIGHT,
        key=None,
        user_agent="u",
        timeout=15,
        warn=lambda event, **fields: warnings.append((event, fields)),
    )
    rows = client.read(answer(200, deep), Operation.ASK, list)
    assert (rows[0]["id"], rows[1]) == (1, {})
    encode({"rows": rows})
    assert warnings == [("a response is nested too deeply: deep values count as null", {"operation": "ask"})]


@pytest.mark.parametrize(
    ("behind", "skew"),
    [pytest.param(90, 90.0, id="behind"), pytest.param(-90, -90.0, id="ahead"), pytest.param(1, 0.0, id="the same")],
)
async def test_clock_skew_is_measured_by_the_date_of_a_response(
    monkeypatch: pytest.MonkeyPatch, behind: int, skew: float
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_796_034_000.0)
    date = format_datetime(datetime.fromtimestamp(1_796_034_000 - behind, UTC), usegmt=True)
    client = rest(Scripted([answer(200, headers={"date": date}), answer(200)]))
    assert client.clock_skew == 0.0
    await client.call(Operation.ASK, "GET", "/x")
    assert client.clock_skew == skew
    await client.call(Operation.ASK, "GET", "/x")
    assert client.clock_skew == 0.0, "a response without a date tells nothing"
