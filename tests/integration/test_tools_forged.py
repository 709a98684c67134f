"""Forged calls to the real server on a socket: none returns memory, each is refused with a message and counted.

Every case is sent over MCP and REST. There are memories of Ada, of Ben in the same company, and of Eve in another.
"""

import base64
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest

from consumer.tools.results import ToolOutcome
from tests.support.tools_fixture import (
    ADA,
    ADAS_RUN,
    BEN,
    BENS_RUN,
    COMPANY,
    EVE,
    EVES_RUN,
    KEY,
    MCP_HEADERS,
    OTHER_COMPANY,
    SECRET,
    SERVED,
    ToolsFixture,
    call,
    tool_text,
)

Headers = list[tuple[str, str]]
ADA_S = ("Authorization", f"Bearer {KEY[ADA]}")
GATEWAYS = ("Authorization", f"Bearer {SECRET}")


def jwt(**claims: Any) -> str:
    """A run token signed with a guessed secret."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    signature = hmac.new(b"guessed", signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


ADAS_CLAIMS = {"sub": ADA, "company_id": COMPANY, "run_id": ADAS_RUN}
FORGED_HEADERS: dict[str, Headers] = {
    "no token": [],
    "no token, but a run": [("X-Paperclip-Run-Id", ADAS_RUN)],
    "an empty token": [("Authorization", "Bearer")],
    "a token of another scheme": [("Authorization", "Basic " + base64.b64encode(b"ada:pcp_key_of_ada").decode())],
    "the key without its scheme": [("Authorization", KEY[ADA])],
    "an unknown key": [("Authorization", "Bearer pcp_key_of_nobody")],
    "a key in other letters": [("Authorization", f"Bearer {KEY[ADA].upper()}")],
    "a key that only begins right": [("Authorization", f"Bearer {KEY[ADA][:-1]}")],
    "an expired token": [("Authorization", f"Bearer {jwt(**ADAS_CLAIMS, exp=1)}")],
    "a token signed by somebody else": [("Authorization", f"Bearer {jwt(**ADAS_CLAIMS, exp=4_000_000_000)}")],
    "a token that names no algorithm": [
        ("Authorization", "Bearer eyJhbGciOiJub25lIn0." + jwt(**ADAS_CLAIMS).split(".")[1] + ".")
    ],
    "the key of a person": [("Authorization", "Bearer pcp_our_board_key")],
    "the key in the query's place": [("X-Api-Key", KEY[ADA])],
    "another agent's run": [ADA_S, ("X-Paperclip-Run-Id", BENS_RUN)],
    "another company's run": [ADA_S, ("X-Paperclip-Run-Id", EVES_RUN)],
    "a run that is none": [ADA_S, ("X-Paperclip-Run-Id", "b0000000-0000-4000-8000-0000000000ff")],
    "a run id that is a path": [ADA_S, ("X-Paperclip-Run-Id", f"{ADAS_RUN}/../{BENS_RUN}")],
    "two runs": [ADA_S, ("X-Paperclip-Run-Id", ADAS_RUN), ("X-Paperclip-Run-Id", BENS_RUN)],
    "two runs in other letters": [ADA_S, ("X-PAPERCLIP-RUN-ID", ADAS_RUN), ("x-paperclip-run-id", BENS_RUN)],
    "two tokens": [ADA_S, ("authorization", f"Bearer {KEY[BEN]}")],
    "the gateway's headers without the secret": [
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", ADA),
        ("x-paperclip-run-id", ADAS_RUN),
    ],
    "the gateway's headers with a wrong secret": [
        ("Authorization", f"Bearer {SECRET[:-1]}"),
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", ADA),
    ],
    "the gateway's headers with one's own key": [
        ADA_S,
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", BEN),
        ("x-paperclip-run-id", BENS_RUN),
    ],
    "the secret in other letters": [
        ("Authorization", f"Bearer {SECRET.upper()}"),
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", ADA),
    ],
    "one's own key and another company": [ADA_S, ("X-Paperclip-Company-Id", OTHER_COMPANY)],
    "one's own key and another agent, in capitals": [ADA_S, ("X-PAPERCLIP-AGENT-ID", BEN.upper())],
    "a header that a proxy might take for another": [ADA_S, ("X_Paperclip_Agent_Id", BEN)],
    "the secret, and no agent": [GATEWAYS],
    "the secret, and no company": [GATEWAYS, ("x-paperclip-agent-id", ADA)],
    "the secret, and another agent's run": [
        GATEWAYS,
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", ADA),
        ("x-paperclip-run-id", BENS_RUN),
    ],
    "the secret, and an agent of another company": [
        GATEWAYS,
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", EVE),
        ("x-paperclip-run-id", EVES_RUN),
    ],
    "the secret twice, with two agents": [
        GATEWAYS,
        ("x-paperclip-company-id", COMPANY),
        ("x-paperclip-agent-id", ADA),
        ("x-paperclip-agent-id", BEN),
    ],
}
FORGED_ARGUMENTS: dict[str, dict[str, Any]] = {
    "a bank": {"bank": f"paperclip::{COMPANY}::{BEN}"},
    "a bank id": {"bankId": f"paperclip::{COMPANY}::{BEN}"},
    "an agent": {"agentId": BEN},
    "a company": {"company_id": OTHER_COMPANY},
    "a run": {"runId": BENS_RUN},
    "a user": {"userId": "bo@example.org"},
    "metadata": {"metadata": {"agentId": BEN}},
    "a document": {"document_id": "b0000000-0000-4000-8000-000000000001"},
    "headers": {"headers": {"x-paperclip-agent-id": BEN}},
}


@pytest.fixture
def tools() -> ToolsFixture:
    tools = ToolsFixture()
    for run in (ADAS_RUN, BENS_RUN, EVES_RUN):
        tools.record_recall(run)
    return tools


def assert_refused(tools: ToolsFixture, replies: list[httpx.Response]) -> None:
    """No response contains memory, each explains why and is counted, and Hindsight got no request."""
    for reply in replies:
        if reply.status_code == 200:
            words, is_error = tool_text(reply)
            assert is_error
        else:
            assert reply.status_code in (400, 401, 403)
            assert reply.headers["content-type"] == "application/problem+json"
            words = reply.json()["detail"]
        assert len(words.split()) > 4
        assert SERVED not in reply.text
        for secret in (*KEY.values(), SECRET):
            assert secret not in reply.text
    assert tools.hindsight.calls == []
    outcomes = {outcome for (_, outcome), count in tools.counted.items() if count}
    assert outcomes == {ToolOutcome.DENIED}
    assert sum(tools.counted.values()) == len(replies)


@pytest.mark.parametrize("headers", FORGED_HEADERS.values(), ids=FORGED_HEADERS)
async def test_forged_headers_are_refused_on_every_path(tools: ToolsFixture, headers: Headers) -> None:
    on_mcp = [*headers, *MCP_HEADERS.items()]
    async with tools.open() as client:
        replies = [
            await client.post("/mcp", json=call("hindsight_recall", query="release train"), headers=on_mcp),
            await client.post("/mcp", json=call("hindsight_retain", content="poison"), headers=on_mcp),
            await client.post("/v1/tools/recall", json={"query": "train", "fresh": True}, headers=headers),
            await client.post("/v1/tools/retain", json={"content": "poison"}, headers=headers),
            await client.get(f"/v1/runs/{BENS_RUN}/memories", headers=headers),
        ]
    assert_refused(tools, replies)


@pytest.mark.parametrize("arguments", FORGED_ARGUMENTS.values(), ids=FORGED_ARGUMENTS)
async def test_arguments_that_name_another_owner_are_refused(tools: ToolsFixture, arguments: dict[str, Any]) -> None:
    on_mcp = [ADA_S, *MCP_HEADERS.items()]
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    async with tools.open() as client:
        replies = [
            await client.post("/mcp", json=call("hindsight_recall", query="train", **arguments), headers=on_mcp),
            await client.post("/mcp", json=call("hindsight_retain", content="poison", **arguments), headers=on_mcp),
            await client.post("/v1/tools/recall", json={"query": "train", **arguments}, headers=[ADA_S]),
            await client.post("/v1/tools/retain", json={"content": "poison", **arguments}, headers=[ADA_S]),
        ]
        if texts:
            replies += [
                await client.post("/v1/tools/recall", params=texts, json={"query": "train"}, headers=[ADA_S]),
                await client.get(f"/v1/runs/{ADAS_RUN}/memories", params=texts, headers=[ADA_S]),
            ]
    assert_refused(tools, replies)


@pytest.mark.parametrize("run", [BENS_RUN, EVES_RUN, "b0000000-0000-4000-8000-0000000000ff"])
async def test_a_path_with_another_agents_run_is_refused(tools: ToolsFixture, run: str) -> None:
    async with tools.open() as client:
        assert_refused(tools, [await client.get(f"/v1/runs/{run}/memories", headers=[ADA_S])])


async def test_honest_headers_are_served(tools: ToolsFixture) -> None:
    """The same setup serves honest calls, so the refusals above are not vacuous."""
    async with tools.open() as client:
        honest: list[Headers] = [
            [ADA_S, ("X-Paperclip-Run-Id", ADAS_RUN)],
            [ADA_S, ("x-paperclip-run-id", ADAS_RUN.upper()), ("X-Paperclip-Agent-Id", ADA)],
            [
                GATEWAYS,
                ("x-paperclip-company-id", COMPANY),
                ("x-paperclip-agent-id", ADA),
                ("x-paperclip-run-id", ADAS_RUN),
            ],
        ]
        for headers in honest:
            reply = await client.post("/v1/tools/recall", json={"query": "release train"}, headers=headers)
            assert reply.status_code == 200
            assert SERVED in reply.json()["content"]


def test_there_are_at_least_40_forged_cases() -> None:
    assert len(FORGED_HEADERS) + len(FORGED_ARGUMENTS) >= 40
