import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.errors import (
    DeadLetterReason,
    DownKind,
    HandlingError,
    Permanent,
    Transient,
    Upstream,
    UpstreamDown,
)
from consumer.http.errors import classify, missing, retry_after
from consumer.http.transport import (
    ConnectError,
    ConnectionLost,
    RequestTimeout,
    Response,
    ResponseTooLarge,
    TransportError,
)
from tests.unit.http.scripted import answer

HINDSIGHT, PAPERCLIP = Upstream.HINDSIGHT, Upstream.PAPERCLIP
BOTH = (HINDSIGHT, PAPERCLIP)
NOW = 1_800_000_000.0
ABOUT = "retain at http://hindsight:8888"
OWN_404 = {HINDSIGHT: {"detail": "Bank 'x' not found"}, PAPERCLIP: {"error": "Issue not found"}}


def of(answered: Response | TransportError, upstream: Upstream = HINDSIGHT) -> HandlingError:
    return classify(answered, upstream, ABOUT, NOW)


def verdict(error: HandlingError) -> object:
    match error:
        case Permanent():
            return error.reason
        case UpstreamDown():
            return error.kind
        case _:
            return type(error)


@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, DeadLetterReason.REJECTED) for status in (301, 302, 304, 307, 308)),
        *((status, DeadLetterReason.REJECTED) for status in (400, 404, 405, 406, 410, 415, 422, 451)),
        (413, DeadLetterReason.TOO_LARGE),
        *((status, DownKind.REFUSED) for status in (401, 402)),
        *((status, Transient) for status in (408, 409, 425, 429, 500, 501, 502, 503, 504, 529, 599)),
        *((status, Transient) for status in (200, 201, 204)),  # with a body that is not what was promised
        *((status, Transient) for status in (0, 100, 199, 600, 999)),
    ],
)
def test_status_maps_to_its_error(upstream: Upstream, status: int, expected: object) -> None:
    error = of(answer(status, OWN_404[upstream]), upstream)
    assert verdict(error) == expected
    assert error.upstream is upstream


def test_403_is_a_refused_key_at_hindsight_and_a_forbidden_record_at_paperclip() -> None:
    assert verdict(of(answer(403, {"detail": "no"}), HINDSIGHT)) is DownKind.REFUSED
    elsewhere = {"error": "Agent key cannot access another company"}
    assert verdict(of(answer(403, elsewhere), PAPERCLIP)) is DeadLetterReason.FORBIDDEN


def test_paperclip_key_of_a_removed_user_is_a_refused_key() -> None:
    """Its 403 comes whatever is asked, so no record is to blame."""
    body = {"error": "Responsible user is unavailable for this agent key", "code": "RESPONSIBLE_USER_UNAVAILABLE"}
    assert verdict(of(answer(403, body), PAPERCLIP)) is DownKind.REFUSED


@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize(
    "body",
    [
        b"<html>404 page not found</html>",
        b"",
        b"[]",
        b"{}",
        b'{"detail":"Not Found"}',
        b'{"error":"API route not found"}',
        b'{"detail":["x"]}',
        b'{"error":{"a":1}}',
        b'"Not Found"',
        b"[" * 100_000,
    ],
)
def test_404_of_a_proxy_is_transient(upstream: Upstream, body: bytes) -> None:
    reply = answer(404, body)
    assert missing(reply, upstream) is None
    error = of(reply, upstream)
    assert type(error) is Transient
    assert "wrong base URL" in str(error)


@pytest.mark.parametrize("upstream", BOTH)
def test_missing_returns_the_upstreams_own_text(upstream: Upstream) -> None:
    (said,) = OWN_404[upstream].values()
    assert missing(answer(404, OWN_404[upstream]), upstream) == said


@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize(
    ("error", "expected"),
    [(ConnectError("x"), DownKind.UNREACHABLE), (RequestTimeout("x"), Transient), (ConnectionLost("x"), Transient)],
)
def test_transport_error_maps_to_its_error(upstream: Upstream, error: TransportError, expected: object) -> None:
    assert verdict(of(error, upstream)) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "999999999999999999999"}, 86_400.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 -0000"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 15 Jan 2038 07:00:00 GMT"}, 86_400.0),
        ({"retry-after": "Fri, 15 Jan 2027 09:00:10 GMT", "date": "Fri, 15 Jan 2027 09:00:00 GMT"}, 10.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT", "date": "rubbish"}, 30.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 409])
def test_retry_after_is_read_as_seconds_or_date(status: int, headers: dict[str, str], expected: float | None) -> None:
    error = of(answer(status, headers=headers))
    assert isinstance(error, Transient)
    assert error.retry_after == expected


def test_messages_name_operation_and_base_url() -> None:
    assert str(of(answer(503))) == f"Hindsight answered 503: {ABOUT}"
    assert str(of(answer(401), PAPERCLIP)) == f"Paperclip refuses our key with 401: {ABOUT}"
    assert str(of(answer(200, b"<html>"))) == (
        f"Hindsight answered 200: {ABOUT}, but the body is not Hindsight's: a proxy's page?"
    )
    assert str(of(ConnectError("refused"))) == f"Hindsight: {ABOUT}: no connection: refused"
    assert str(of(RequestTimeout("15 s"))) == f"Hindsight: {ABOUT}: timed out: 15 s"
    assert str(of(ConnectionLost("reset"))) == f"Hindsight: {ABOUT}: the connection broke: reset"
    assert str(of(ResponseTooLarge())) == f"Hindsight: {ABOUT}: the response is larger than 32 MiB"


def test_422_names_the_fields_without_their_values() -> None:
    detail = [
        {"type": "value_error", "loc": ["body", "items", 0, "content"], "msg": "secret", "input": "secret"},
        {"type": "string_type", "loc": ["body", "a secret key"], "input": None},
        {"type": "a secret type", "loc": "secret"},
        {"type": "fourth", "loc": ["body"]},
        "secret",
    ]
    message = str(of(answer(422, {"detail": detail})))
    assert message == (f"Hindsight answered 422: {ABOUT} (body.items.0.content value_error, body.? string_type, ? ?)")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.binary(max_size=20) | st.builds(
    lambda field, value: json.dumps({field: value}).encode(),
    st.sampled_from(["detail", "error", "code"]),
    JSON | st.lists(st.fixed_dictionaries({"loc": JSON, "type": JSON}), max_size=4),
)


@given(
    status=st.integers(0, 999),
    body=BODIES,
    headers=st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text(max_size=40), max_size=2),
    upstream=st.sampled_from(BOTH),
)
def test_any_response_maps_to_an_error(status: int, body: bytes, headers: dict[str, str], upstream: Upstream) -> None:
    error = of(Response(status, headers, body), upstream)
    assert isinstance(error, Permanent | Transient | UpstreamDown)
    assert error.upstream is upstream
    assert str(status) in str(error)
    if isinstance(error, Permanent):
        assert 300 <= status < 500
    if isinstance(error, Transient) and error.retry_after is not None:
        assert 0 <= error.retry_after <= 86_400


@given(value=st.text(max_size=60), date=st.text(max_size=60))
def test_retry_after_never_raises(value: str, date: str) -> None:
    seconds: Any = retry_after(Response(503, {"retry-after": value, "date": date}, b""), NOW)
    assert seconds is None or 0 <= seconds <= 86_400


def test_a_response_over_the_limit_is_a_dead_letter() -> None:
    error = of(ResponseTooLarge())
    assert isinstance(error, Permanent)
    assert error.reason is DeadLetterReason.TOO_LARGE
