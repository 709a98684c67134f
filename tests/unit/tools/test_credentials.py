"""Claims in headers, and which of them are believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.tools.credentials import (
    Agent,
    Claims,
    ToolError,
    agent_from_gateway,
    agent_from_key,
    matches_secret,
    read_claims,
    with_run,
)
from tests.support.tools_fixture import ADA, ADAS_RUN, BEN, BENS_RUN, COMPANY, ISSUE, OTHER_COMPANY

Header = tuple[bytes, bytes]
KEY = (b"authorization", b"Bearer some-key")


def claims(*headers: Header) -> Claims:
    return read_claims([KEY, *headers])


def test_claims_of_all_headers_are_read() -> None:
    assert claims(
        (b"X-Paperclip-Company-Id", COMPANY.upper().encode()),
        (b"x-paperclip-agent-id", ADA.encode()),
        (b"x-paperclip-run-id", f" {ADAS_RUN} ".encode()),
        (b"x-paperclip-issue-id", ISSUE.encode()),
        (b"x-paperclip-correlation-id", b"anything"),
    ) == Claims("some-key", COMPANY, ADA, ADAS_RUN, ISSUE)


def test_an_empty_header_counts_as_absent() -> None:
    assert claims((b"x-paperclip-run-id", b" ")) == Claims("some-key")


@pytest.mark.parametrize("value", [b"Bearer k", b"bearer k", b"BEARER  k", b" Bearer k "])
def test_a_bearer_is_read_in_any_case_and_spacing(value: bytes) -> None:
    assert read_claims([(b"authorization", value)]).bearer == "k"


@pytest.mark.parametrize(
    "value",
    [b"", b"Bearer", b"Bearer ", b"k", b"Basic dTpw", b"Bearer a b", b"Bearer k\xe4y", b"Bearer " + b"x" * 8193],
)
def test_a_malformed_bearer_is_refused(value: bytes) -> None:
    with pytest.raises(ToolError, match="Not authenticated") as raised:
        read_claims([(b"authorization", value)])
    assert raised.value.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        [KEY],
        [(b"x-paperclip-run-id", ADAS_RUN.encode()), (b"X-Paperclip-Run-Id", BENS_RUN.encode())],
        [(b"x-paperclip-agent-id", ADA.encode())] * 2,
        [(b"x_paperclip_agent_id", ADA.encode())],
        [(b"X-Paperclip_Company-Id", COMPANY.encode())],
        [(b"x-paperclip-run-id ", ADAS_RUN.encode())],
        [(b"x-paperclip-run-id", b"../agents/me")],
        [(b"x-paperclip-run-id", f"{ADAS_RUN},{BENS_RUN}".encode())],
        [(b"x-paperclip-agent-id", ADA[:-1].encode())],
        [(b"x-paperclip-company-id", b"null")],
    ],
)
def test_repeated_lookalike_and_malformed_headers_are_refused(headers: list[Header]) -> None:
    with pytest.raises(ToolError) as raised:
        claims(*headers)
    assert raised.value.status == 401


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=60)), max_size=6))
def test_any_headers_are_read_or_refused(headers: list[Header]) -> None:
    try:
        claims_read = read_claims(headers)
    except ToolError:
        return
    assert claims_read.bearer


def test_only_the_exact_secret_matches() -> None:
    assert matches_secret("the-secret", "the-secret")
    for wrong in ("the-secre", "the-secret2", "THE-SECRET", ""):
        assert not matches_secret(wrong, "the-secret")
    for unset in (None, ""):
        assert not matches_secret("", unset)


def test_the_gateway_must_name_company_and_agent() -> None:
    assert agent_from_gateway(Claims("s", COMPANY, ADA, ADAS_RUN, ISSUE)) == Agent(COMPANY, ADA, ADAS_RUN, ISSUE)
    for lacking in (Claims("s"), Claims("s", COMPANY), Claims("s", None, ADA, ADAS_RUN)):
        with pytest.raises(ToolError, match="did not name the calling agent"):
            agent_from_gateway(lacking)


def test_headers_that_contradict_the_key_are_refused() -> None:
    for agreeing in (Claims("k"), Claims("k", COMPANY, ADA), Claims("k", None, ADA)):
        assert agent_from_key(agreeing, company=COMPANY, agent=ADA) == Agent(COMPANY, ADA, bearer="k")
    for other in (Claims("k", COMPANY, BEN), Claims("k", OTHER_COMPANY, ADA), Claims("k", OTHER_COMPANY)):
        with pytest.raises(ToolError, match="another agent or company"):
            agent_from_key(other, company=COMPANY, agent=ADA)


def test_the_run_in_the_path_must_be_a_uuid_and_agree_with_the_header() -> None:
    assert with_run(Agent(COMPANY, ADA), ADAS_RUN.upper()).run == ADAS_RUN
    assert with_run(Agent(COMPANY, ADA, ADAS_RUN), ADAS_RUN).run == ADAS_RUN
    with pytest.raises(ToolError, match="another run"):
        with_run(Agent(COMPANY, ADA, ADAS_RUN), BENS_RUN)
    with pytest.raises(ToolError) as raised:
        with_run(Agent(COMPANY, ADA), "latest")
    assert raised.value.status == 404


def test_repr_shows_no_key() -> None:
    assert "hunter2" not in repr(Claims("hunter2")) + repr(Agent(COMPANY, ADA, bearer="hunter2"))
