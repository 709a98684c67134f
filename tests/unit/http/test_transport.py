import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.http.transport import Request, Response, base_url, limit_in_flight, quote_segment


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("http://localhost:8888", "http://localhost:8888"),
        ("http://localhost:8888/", "http://localhost:8888"),
        (" https://h.example/base/path// ", "https://h.example/base/path"),
        ("https://h.example/base?q=1#f", "https://h.example/base"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_base_url_keeps_its_path_only(given_url: str, expected: str) -> None:
    assert base_url(given_url) == expected


@pytest.mark.parametrize("url", ["", "localhost:8888", "ftp://h/", "http://", "/path", "https:///path"])
def test_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not an absolute http:// or https:// URL"):
        base_url(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="user name or password") as caught:
        base_url("https://ada:s3cret@h.example/")
    assert "s3cret" not in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_segment_stays_one_segment(text: str) -> None:
    assert not set(quote_segment(text)) & set("/?#:@+ &")


def test_bank_id_is_quoted() -> None:
    assert quote_segment("paperclip::c::a/b@c+d é") == "paperclip%3A%3Ac%3A%3Aa%2Fb%40c%2Bd%20%C3%A9"


async def test_limited_requests_that_wait_for_their_turn_do_not_time_out() -> None:
    in_flight = 0

    async def transport(request: Request) -> Response:
        nonlocal in_flight
        async with asyncio.timeout(request.timeout):
            in_flight += 1
            assert in_flight <= 2
            await asyncio.sleep(0.01)
            in_flight -= 1
        return Response(200, {}, b"")

    limited = limit_in_flight(transport, 2)
    request = Request("GET", "http://h/", timeout=0.05)  # shorter than all of them take
    responses = await asyncio.gather(*(limited(request) for _ in range(40)))
    assert {response.status for response in responses} == {200}
