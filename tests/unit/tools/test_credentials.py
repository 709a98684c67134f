"""What headers claim, and what of it is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.tools.credentials import Agent, Claims, Refused, claims_of, in_run, is_secret, own, spoken_for
from tests.unit.tools.office import ADA, ADAS_RUN, BEN, BENS_RUN, COMPANY, ISSUE, OTHER_COMPANY

Header = tuple[bytes, bytes]
KEY = (b"authorization", b"Bearer some-key")


def claims(*headers: Header) -> Claims:
    return claims_of([KEY, *headers])


def test_all_claims() -> None:
    assert claims(
        (b"X-Paperclip-Company-Id", COMPANY.upper().encode()),
        (b"x-paperclip-agent-id", ADA.encode()),
        (b"x-paperclip-run-id", f" {ADAS_RUN} ".encode()),
        (b"x-paperclip-issue-id", ISSUE.encode()),
        (b"x-paperclip-correlation-id", b"anything"),
    ) == Claims("some-key", COMPANY, ADA, ADAS_RUN, ISSUE)


def test_an_empty_header_is_none() -> None:
    assert claims((b"x-paperclip-run-id", b" ")) == Claims("some-key")


@pytest.mark.parametrize("value", [b"Bearer k", b"bearer k", b"BEARER  k", b" Bearer k "])
def test_how_a_bearer_may_be_written(value: bytes) -> None:
    assert claims_of([(b"authorization", value)]).bearer == "k"


@pytest.mark.parametrize(
    "value",
    [b"", b"Bearer", b"Bearer ", b"k", b"Basic dTpw", b"Bearer a b", b"Bearer k\xe4y", b"Bearer " + b"x" * 8193],
)
def test_what_is_no_bearer(value: bytes) -> None:
    with pytest.raises(Refused, match="not proven") as refusal:
        claims_of([(b"authorization", value)])
    assert refusal.value.status == 401


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
def test_tricks_with_headers(headers: list[Header]) -> None:
    with pytest.raises(Refused) as refusal:
        claims(*headers)
    assert refusal.value.status == 401


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=60)), max_size=6))
def test_whatever_comes_is_read_or_refused(headers: list[Header]) -> None:
    try:
        found = claims_of(headers)
    except Refused:
        return
    assert found.bearer


def test_the_secret() -> None:
    assert is_secret("the-secret", "the-secret")
    for wrong in ("the-secre", "the-secret2", "THE-SECRET", ""):
        assert not is_secret(wrong, "the-secret")
    for unset in (None, ""):
        assert not is_secret("", unset)


def test_the_gateway_must_name_the_agent() -> None:
    assert spoken_for(Claims("s", COMPANY, ADA, ADAS_RUN, ISSUE)) == Agent(COMPANY, ADA, ADAS_RUN, ISSUE)
    for lacking in (Claims("s"), Claims("s", COMPANY), Claims("s", None, ADA, ADAS_RUN)):
        with pytest.raises(Refused, match="did not say which agent"):
            spoken_for(lacking)


def test_a_key_names_its_agent_and_no_other() -> None:
    for agreeing in (Claims("k"), Claims("k", COMPANY, ADA), Claims("k", None, ADA)):
        assert own(agreeing, company=COMPANY, agent=ADA) == Agent(COMPANY, ADA, bearer="k")
    for other in (Claims("k", COMPANY, BEN), Claims("k", OTHER_COMPANY, ADA), Claims("k", OTHER_COMPANY)):
        with pytest.raises(Refused, match="another agent or company"):
            own(other, company=COMPANY, agent=ADA)


def test_the_run_of_a_path() -> None:
    assert in_run(Agent(COMPANY, ADA), ADAS_RUN.upper()).run == ADAS_RUN
    assert in_run(Agent(COMPANY, ADA, ADAS_RUN), ADAS_RUN).run == ADAS_RUN
    with pytest.raises(Refused, match="another run"):
        in_run(Agent(COMPANY, ADA, ADAS_RUN), BENS_RUN)
    with pytest.raises(Refused) as refusal:
        in_run(Agent(COMPANY, ADA), "latest")
    assert refusal.value.status == 404


def test_keys_are_not_shown() -> None:
    assert "hunter2" not in repr(Claims("hunter2")) + repr(Agent(COMPANY, ADA, bearer="hunter2"))
