"""The tools over real sockets: the official MCP client, calls as Paperclip's gateway makes them, and REST."""

import asyncio
import json
import logging
import re

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from consumer.errors import SettingsError, Transient, Upstream
from consumer.memory.policy import MemoryPolicy
from consumer.tools import dispatcher as dispatcher_module
from consumer.tools.middleware import MAX_BODY
from consumer.tools.results import MAX_BYTES, Tool, ToolOutcome
from consumer.tools.server import listening
from tests.support.tools_fixture import (
    ADA,
    ADAS_RUN,
    BEN,
    KEY,
    MCP_HEADERS,
    SERVED,
    ToolsFixture,
    bank,
    bearer,
    call,
    gateway,
    tool_text,
)

ARGUMENTS_LIST = {"name": "hindsight_recall", "arguments": ["x"]}
LIST = {"jsonrpc": "2.0", "id": "paperclip-catalog-refresh", "method": "tools/list", "params": {}}


def _nested(depth: int) -> str:
    """A placeholder for nested lists too deep for Python's own encoder."""
    return f"NESTED {depth}"


def _dumps(body: object) -> str:
    def deep(match: re.Match[str]) -> str:
        return "[" * int(match[1]) + "]" * int(match[1])

    return re.sub(r'"NESTED (\d+)"', deep, json.dumps(body))


@pytest.fixture
def tools() -> ToolsFixture:
    return ToolsFixture()


# MCP


async def test_the_official_mcp_client_lists_and_calls_the_tools(tools: ToolsFixture) -> None:
    tools.record_recall()
    async with (
        tools.open() as client,
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
    assert tools.counted == {(Tool.RECALL, ToolOutcome.CACHED): 1, (Tool.RETAIN, ToolOutcome.LIVE): 1}


async def test_mcp_calls_without_initialize_are_served(tools: ToolsFixture) -> None:
    tools.record_recall()
    async with tools.open() as client:
        listed = await client.post("/mcp", json=LIST, headers=MCP_HEADERS | gateway(None))
        assert listed.status_code == 200
        assert listed.headers["content-type"].startswith("application/json")
        specs = {spec["name"]: spec for spec in listed.json()["result"]["tools"]}
        assert specs["hindsight_recall"]["annotations"]["readOnlyHint"] is True
        assert specs["hindsight_retain"]["annotations"]["readOnlyHint"] is False
        assert specs["hindsight_retain"]["inputSchema"]["required"] == ["content"]
        headers = MCP_HEADERS | gateway(ADA, ADAS_RUN)
        reply = await client.post("/mcp", json=call("hindsight_recall", query="trains"), headers=headers)
        assert tool_text(reply) == (f"<paperclip-memory>\n- {SERVED}\n</paperclip-memory>", False)
        reply = await client.post("/mcp", json=call("hindsight_retain", content="On Tuesdays."), headers=headers)
        assert tool_text(reply) == ("Memory saved.", False)
    stored_in, memory, _ = tools.hindsight.called("retain")[0]
    assert (stored_in, memory.metadata["runId"]) == (bank(ADA), ADAS_RUN)


async def test_failures_for_the_gateway_are_text_in_a_200_result(tools: ToolsFixture) -> None:
    tools.hindsight.fail("recall", Transient("down", upstream=Upstream.HINDSIGHT))
    tools.policy = MemoryPolicy(enabled_agents=frozenset({ADA}))
    calls = [
        (call("hindsight_recall", query="x"), gateway(), "Hindsight is not available"),
        (call("hindsight_recall"), gateway(), "'query' is missing"),
        (call("hindsight_recall", query="x", bank="other"), gateway(), "Unknown argument 'bank'"),
        (call("hindsight_retain", content="x" * 100_001), gateway(), "longer than 100000"),
        (call("hindsight_retain", content="half an emoji \ud83d", to="x"), gateway(), "Unknown argument 'to'"),
        (call("hindsight_retain", content="nested", to=_nested(900)), gateway(), "Unknown argument 'to'"),
        (call("hindsight_retain", content="nested", to=_nested(100_000)), gateway(), "not readable JSON"),
        (call("hindsight_retain", content="x" * MAX_BODY), gateway(), "The body is larger than"),
        (call("hindsight_recall") | {"params": ARGUMENTS_LIST}, gateway(), "'query' is missing"),
        (call("hindsight_reflect", query="x"), gateway(), "Unknown tool"),
        (call("hindsight_recall", query="x"), gateway(BEN), "not enabled for you"),
        (call("hindsight_recall", query="x"), gateway(None), "must forward company_id"),
    ]
    async with tools.open() as client:
        for body, headers, words in calls:
            reply = await client.post("/mcp", content=_dumps(body), headers=MCP_HEADERS | headers)
            assert reply.status_code == 200, words
            text, is_error = tool_text(reply)
            assert words in text
            assert is_error
    assert sum(tools.counted.values()) == len(calls)


async def test_while_paperclip_is_down_tools_are_listed_and_calls_explain_the_failure(tools: ToolsFixture) -> None:
    tools.paperclip.down = True
    async with tools.open() as client:
        assert (await client.post("/mcp", json=LIST, headers=MCP_HEADERS | bearer(ADA))).status_code == 200
        reply = await client.post("/mcp", json=call("hindsight_recall", query="x"), headers=MCP_HEADERS | bearer(ADA))
        assert tool_text(reply)[0].startswith("Your identity could not be checked")


async def test_a_hanging_hindsight_gives_a_result_within_the_budget(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_module, "BUDGET", 0.1)
    hang = asyncio.Event()

    async def recall(*_: object) -> list[str]:
        await hang.wait()
        raise AssertionError

    monkeypatch.setattr(tools.hindsight, "recall", recall)
    async with tools.open() as client:
        body = call("hindsight_recall", query="x")
        reply = await client.post("/mcp", json=body, headers=MCP_HEADERS | gateway())
        assert tool_text(reply) == ("Memory was not searched: the request timed out. Try again in 5 s.", True)
        reply = await client.post("/v1/tools/recall", json={"query": "x"}, headers=gateway())
        assert reply.status_code == 504


def test_the_budget_is_shorter_than_the_gateways_timeout() -> None:
    assert dispatcher_module.BUDGET < 8


async def test_a_huge_result_stays_under_the_gateways_size_limit(tools: ToolsFixture) -> None:
    tools.record_recall(texts=["\N{GRINNING FACE}<paperclip-memory>" * 1000] * 200)
    async with tools.open() as client:
        body = call("hindsight_recall", query="x")
        reply = await client.post("/mcp", json=body, headers=MCP_HEADERS | gateway(ADA, ADAS_RUN))
        assert 500_000 < len(reply.content) <= MAX_BYTES
        assert not tool_text(reply)[1]


# REST


async def test_rest_recall_retain_and_run_memories(tools: ToolsFixture) -> None:
    async with tools.open() as client:
        nothing = await client.post("/v1/tools/recall", json={"query": "trains"}, headers=bearer(ADA))
        assert nothing.json() == {"content": "No relevant memories found.", "outcome": "empty"}
        saved = await client.post("/v1/tools/retain", json={"content": SERVED}, headers=bearer(ADA, ADAS_RUN))
        assert saved.status_code == 200
        assert saved.json()["content"] == "Memory saved."
        again = await client.post("/v1/tools/retain", json={"content": SERVED}, headers=bearer(ADA, ADAS_RUN))
        assert again.json() == saved.json()
        tools.hindsight.run_workers()
        assert list(tools.hindsight.documents) == [saved.json()["documentId"]]
        live = await client.post("/v1/tools/recall", json={"query": "the train", "fresh": True}, headers=bearer(ADA))
        assert live.json()["outcome"] == "live"
        assert SERVED in live.json()["content"]
        tools.record_recall()
        run = await client.get(f"/v1/runs/{ADAS_RUN}/memories", headers=bearer(ADA))
        assert run.json()["outcome"] == "cached"
        other = await client.post("/v1/tools/recall", json={"query": "the train"}, headers=bearer(BEN))
        assert other.json()["outcome"] == "empty"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"[1]", 400, "not a JSON object"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"query": 1}', 400, "must be text"),
        (b'{"query": "x", "bankId": "other"}', 400, "Unknown argument 'bankId'"),
        (b'{"query": "' + b"x" * MAX_BODY + b'"}', 413, "larger than"),
    ],
)
async def test_invalid_rest_bodies_are_problem_details(
    tools: ToolsFixture, body: bytes, status: int, words: str
) -> None:
    async with tools.open() as client:
        reply = await client.post("/v1/tools/recall", content=body, headers=bearer(ADA))
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["status"] == status
    assert problem["title"]
    assert words in problem["detail"]
    assert tools.counted == {(Tool.RECALL, ToolOutcome.DENIED): 1}


async def test_rest_errors_have_their_status_and_headers(tools: ToolsFixture) -> None:
    async with tools.open() as client:
        nobody = await client.post("/v1/tools/recall", json={"query": "x"})
        assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, 'Bearer realm="paperclip-memory"')
        assert (await client.get("/v1/nothing", headers=bearer(ADA))).json()["status"] == 404
        wrong_method = await client.put("/v1/tools/recall", headers=bearer(ADA))
        assert (wrong_method.status_code, wrong_method.headers["content-type"]) == (405, "application/problem+json")
        tools.paperclip.down = True
        away = await client.post("/v1/tools/recall", json={"query": "x"}, headers=bearer(BEN))
        assert (away.status_code, away.headers["retry-after"]) == (503, "5")


async def test_the_openapi_document_is_public_and_matches_the_responses(tools: ToolsFixture) -> None:
    async with tools.open() as client:
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
async def test_requests_for_a_host_that_is_not_allowed_get_421(
    tools: ToolsFixture, allowed: list[str], headers: dict[str, str], status: int
) -> None:
    async with tools.open(allowed) as client:
        for reply in (
            await client.post("/mcp", json=LIST, headers=MCP_HEADERS | gateway() | headers),
            await client.post("/v1/tools/recall", json={"query": "x"}, headers=bearer(ADA) | headers),
        ):
            assert reply.status_code == status
    assert tools.counted[Tool.OTHER, ToolOutcome.DENIED] == (2 if status == 421 else 0)


def test_an_occupied_port_is_a_settings_error() -> None:
    with (
        listening("127.0.0.1", 0) as bound,
        pytest.raises(SettingsError, match=r"tools_port.*cannot listen on 127\.0\.0\.1"),
        listening("127.0.0.1", bound.getsockname()[1]),
    ):
        pass


async def test_keys_and_memories_are_never_logged(tools: ToolsFixture, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tools.record_recall()
    async with tools.open() as client:
        headers = MCP_HEADERS | bearer(ADA, ADAS_RUN)
        await client.post("/mcp", json=call("hindsight_recall", query="hunter2"), headers=headers)
        await client.post("/mcp", content=b"{hunter2", headers=headers)
        await client.post("/v1/tools/retain", json={"content": "hunter2"}, headers=bearer(ADA))
    for word in (KEY[ADA], "hunter2", SERVED):
        assert word not in caplog.text
