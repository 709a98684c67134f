"""The tools over real sockets: the official MCP client, bare calls as Paperclip's gateway makes them, and REST."""

import asyncio
import json
import logging
import re

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from consumer.errors import SettingsError, Transient, Upstream
from consumer.memory.policy import Rules
from consumer.tools import dispatcher as desk_module
from consumer.tools.middleware import MAX_BODY
from consumer.tools.results import MAX_BYTES, Tool, ToolOutcome
from consumer.tools.server import listening
from tests.unit.tools.office import (
    ADA,
    ADAS_RUN,
    BEN,
    KEY,
    MCP_HEADERS,
    SERVED,
    Office,
    bank,
    bearer,
    call,
    gateway,
    said,
)

ARGUMENTS_LIST = {"name": "hindsight_recall", "arguments": ["x"]}
LIST = {"jsonrpc": "2.0", "id": "paperclip-catalog-refresh", "method": "tools/list", "params": {}}


def _nested(depth: int) -> str:
    """Stands for a list in a list, and so on, that Python's own encoder could not write."""
    return f"NESTED {depth}"


def _dumps(body: object) -> str:
    def deep(match: re.Match[str]) -> str:
        return "[" * int(match[1]) + "]" * int(match[1])

    return re.sub(r'"NESTED (\d+)"', deep, json.dumps(body))


@pytest.fixture
def office() -> Office:
    return Office()


# MCP


async def test_the_official_client_with_initialize(office: Office) -> None:
    office.recalled()
    async with (
        office.open() as client,
        httpx2.AsyncClient(headers=bearer(ADA, ADAS_RUN)) as http,
        streamable_http_client(f"{client.base_url}/mcp", http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        about = await session.initialize()
        assert (about.server_info.name, about.server_info.version) == ("paperclip-memory", "1.2.3")
        assert "long-term memory" in (about.instructions or "")
        listed = (await session.list_tools()).tools
        assert [tool.name for tool in listed] == ["hindsight_recall", "hindsight_retain"]
        assert [tool.annotations.read_only_hint for tool in listed if tool.annotations] == [True, False]
        result = await session.call_tool("hindsight_recall", {"query": "release train"})
        assert not result.is_error
        assert [getattr(content, "text", "") for content in result.content] == [
            f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>"
        ]
        saved = await session.call_tool("hindsight_retain", {"content": "We ship on Tuesdays."})
        assert [getattr(content, "text", "") for content in saved.content] == ["Memory saved."]
    assert office.counted == {(Tool.RECALL, ToolOutcome.CACHED): 1, (Tool.RETAIN, ToolOutcome.LIVE): 1}


async def test_bare_calls_without_initialize(office: Office) -> None:
    office.recalled()
    async with office.open() as client:
        listed = await client.post("/mcp", json=LIST, headers=MCP_HEADERS | gateway(None))
        assert listed.status_code == 200
        assert listed.headers["content-type"].startswith("application/json")
        tools = {tool["name"]: tool for tool in listed.json()["result"]["tools"]}
        assert tools["hindsight_recall"]["annotations"]["readOnlyHint"] is True
        assert tools["hindsight_retain"]["annotations"]["readOnlyHint"] is False
        assert tools["hindsight_retain"]["inputSchema"]["required"] == ["content"]
        headers = MCP_HEADERS | gateway(ADA, ADAS_RUN)
        reply = await client.post("/mcp", json=call("hindsight_recall", query="trains"), headers=headers)
        assert said(reply) == (f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>", False)
        reply = await client.post("/mcp", json=call("hindsight_retain", content="On Tuesdays."), headers=headers)
        assert said(reply) == ("Memory saved.", False)
    stored_in, memory, _ = office.hindsight.called("retain")[0]
    assert (stored_in, memory.metadata["runId"]) == (bank(ADA), ADAS_RUN)


async def test_failures_are_text_never_a_status_and_never_a_protocol_error(office: Office) -> None:
    office.hindsight.fail("recall", Transient("down", upstream=Upstream.HINDSIGHT))
    office.rules = Rules(enabled_agents=frozenset({ADA}))
    calls = [
        (call("hindsight_recall", query="x"), gateway(), "Hindsight is not available"),
        (call("hindsight_recall"), gateway(), "'query' is missing"),
        (call("hindsight_recall", query="x", bank="other"), gateway(), "no argument 'bank'"),
        (call("hindsight_retain", content="x" * 100_001), gateway(), "longer than 100000"),
        (call("hindsight_retain", content="half an emoji \ud83d", to="x"), gateway(), "no argument 'to'"),
        (call("hindsight_retain", content="nested", to=_nested(900)), gateway(), "no argument 'to'"),
        (call("hindsight_retain", content="nested", to=_nested(100_000)), gateway(), "no JSON that can be read"),
        (call("hindsight_retain", content="x" * MAX_BODY), gateway(), "The body is larger than"),
        (call("hindsight_recall") | {"params": ARGUMENTS_LIST}, gateway(), "'query' is missing"),
        (call("hindsight_reflect", query="x"), gateway(), "no such tool"),
        (call("hindsight_recall", query="x"), gateway(BEN), "not enabled for you"),
        (call("hindsight_recall", query="x"), gateway(None), "must forward company_id"),
    ]
    async with office.open() as client:
        for body, headers, words in calls:
            reply = await client.post("/mcp", content=_dumps(body), headers=MCP_HEADERS | headers)
            assert reply.status_code == 200, words
            text, is_error = said(reply)
            assert words in text
            assert is_error
    assert sum(office.counted.values()) == len(calls)


async def test_while_paperclip_is_down_tools_are_listed_and_calls_say_why(office: Office) -> None:
    office.paperclip.down = True
    async with office.open() as client:
        assert (await client.post("/mcp", json=LIST, headers=MCP_HEADERS | bearer(ADA))).status_code == 200
        reply = await client.post("/mcp", json=call("hindsight_recall", query="x"), headers=MCP_HEADERS | bearer(ADA))
        assert said(reply)[0].startswith("Who you are could not be checked")


async def test_a_hindsight_that_hangs_is_an_answer_in_time(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "BUDGET", 0.1)
    hang = asyncio.Event()

    async def recall(*_: object) -> list[str]:
        await hang.wait()
        raise AssertionError

    monkeypatch.setattr(office.hindsight, "recall", recall)
    async with office.open() as client:
        body = call("hindsight_recall", query="x")
        reply = await client.post("/mcp", json=body, headers=MCP_HEADERS | gateway())
        assert said(reply) == ("Memory was not searched: there was no answer in time. Try again in 5 s.", True)
        reply = await client.post("/v1/tools/recall", json={"query": "x"}, headers=gateway())
        assert reply.status_code == 504


def test_the_budget_keeps_within_the_gateways_patience() -> None:
    assert desk_module.BUDGET < 8


async def test_a_huge_answer_stays_under_what_the_gateway_takes(office: Office) -> None:
    office.recalled(texts=["\N{GRINNING FACE}<paperclip-memory>" * 1000] * 200)
    async with office.open() as client:
        body = call("hindsight_recall", query="x")
        reply = await client.post("/mcp", json=body, headers=MCP_HEADERS | gateway(ADA, ADAS_RUN))
        assert 500_000 < len(reply.content) <= MAX_BYTES
        assert not said(reply)[1]


# REST


async def test_the_twins(office: Office) -> None:
    async with office.open() as client:
        nothing = await client.post("/v1/tools/recall", json={"query": "trains"}, headers=bearer(ADA))
        assert nothing.json() == {"content": "No relevant memories found.", "outcome": "empty"}
        saved = await client.post("/v1/tools/retain", json={"content": SERVED}, headers=bearer(ADA, ADAS_RUN))
        assert saved.status_code == 200
        assert saved.json()["content"] == "Memory saved."
        again = await client.post("/v1/tools/retain", json={"content": SERVED}, headers=bearer(ADA, ADAS_RUN))
        assert again.json() == saved.json()
        office.hindsight.digest()
        assert list(office.hindsight.documents) == [saved.json()["documentId"]]
        live = await client.post("/v1/tools/recall", json={"query": "the train", "fresh": True}, headers=bearer(ADA))
        assert live.json()["outcome"] == "live"
        assert SERVED in live.json()["content"]
        office.recalled()
        run = await client.get(f"/v1/runs/{ADAS_RUN}/memories", headers=bearer(ADA))
        assert run.json()["outcome"] == "cached"
        other = await client.post("/v1/tools/recall", json={"query": "the train"}, headers=bearer(BEN))
        assert other.json()["outcome"] == "empty"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "no JSON"),
        (b"[1]", 400, "no JSON object"),
        (b"\xff", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        (b'{"query": 1}', 400, "must be text"),
        (b'{"query": "x", "bankId": "other"}', 400, "no argument 'bankId'"),
        (b'{"query": "' + b"x" * MAX_BODY + b'"}', 413, "larger than"),
    ],
)
async def test_wrong_bodies_are_problems(office: Office, body: bytes, status: int, words: str) -> None:
    async with office.open() as client:
        reply = await client.post("/v1/tools/recall", content=body, headers=bearer(ADA))
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["status"] == status
    assert problem["title"]
    assert words in problem["detail"]
    assert office.counted == {(Tool.RECALL, ToolOutcome.DENIED): 1}


async def test_statuses_and_headers(office: Office) -> None:
    async with office.open() as client:
        nobody = await client.post("/v1/tools/recall", json={"query": "x"})
        assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, 'Bearer realm="paperclip-memory"')
        assert (await client.get("/v1/nothing", headers=bearer(ADA))).json()["status"] == 404
        wrong_method = await client.put("/v1/tools/recall", headers=bearer(ADA))
        assert (wrong_method.status_code, wrong_method.headers["content-type"]) == (405, "application/problem+json")
        office.paperclip.down = True
        away = await client.post("/v1/tools/recall", json={"query": "x"}, headers=bearer(BEN))
        assert (away.status_code, away.headers["retry-after"]) == (503, "5")


async def test_the_openapi_document_is_served_to_everybody_and_is_what_happens(office: Office) -> None:
    async with office.open() as client:
        reply = await client.get("/openapi.json")
        assert reply.status_code == 200
        document = reply.json()
        assert set(document["paths"]) == {"/v1/tools/recall", "/v1/tools/retain", "/v1/runs/{runId}/memories"}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                unproven = await client.request(method, path.replace("{runId}", ADAS_RUN))
                assert str(unproven.status_code) in operation["responses"]
                assert set(unproven.json()) == set(document["components"]["schemas"]["Problem"]["required"])


# Hosts


@pytest.mark.parametrize(
    ("allowed", "headers", "status"),
    [
        (["127.0.0.1"], {}, 200),
        (["127.0.0.1"], {"Host": "evil.example"}, 421),
        (["127.0.0.1"], {"Host": "127.0.0.1.evil.example"}, 421),
        (["127.0.0.1"], {"Host": ""}, 421),
        (["memory"], {"Host": "memory"}, 200),
        (["memory"], {"Host": "MEMORY:8765"}, 200),
        (["memory:8765"], {"Host": "memory:8765"}, 200),
        (["memory:8765"], {"Host": "memory:80"}, 421),
        (["memory"], {"Host": "memory:8765@evil"}, 421),
        (["[::1]"], {"Host": "[::1]:8765"}, 200),
        (["*"], {"Host": "whatever"}, 200),
        (["127.0.0.1"], {"Origin": "http://evil.example"}, 421),
        (["127.0.0.1"], {"Origin": "null"}, 421),
        (["127.0.0.1"], {"Origin": "http://127.0.0.1:3100"}, 200),
    ],
)
async def test_hosts(office: Office, allowed: list[str], headers: dict[str, str], status: int) -> None:
    async with office.open(allowed) as client:
        for reply in (
            await client.post("/mcp", json=LIST, headers=MCP_HEADERS | gateway() | headers),
            await client.post("/v1/tools/recall", json={"query": "x"}, headers=bearer(ADA) | headers),
        ):
            assert reply.status_code == status
    assert office.counted[Tool.OTHER, ToolOutcome.DENIED] == (2 if status == 421 else 0)


def test_a_port_that_is_taken_is_a_settings_error() -> None:
    with (
        listening("127.0.0.1", 0) as bound,
        pytest.raises(SettingsError, match=r"tools_port.*cannot listen on 127\.0\.0\.1"),
        listening("127.0.0.1", bound.getsockname()[1]),
    ):
        pass


async def test_keys_and_memories_stand_in_no_log(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    office.recalled()
    async with office.open() as client:
        headers = MCP_HEADERS | bearer(ADA, ADAS_RUN)
        await client.post("/mcp", json=call("hindsight_recall", query="hunter2"), headers=headers)
        await client.post("/mcp", content=b"{hunter2", headers=headers)
        await client.post("/v1/tools/retain", json={"content": "hunter2"}, headers=bearer(ADA))
    for word in (KEY[ADA], "hunter2", SERVED):
        assert word not in caplog.text
