"""Limits of the tools' port, tried with raw sockets and bare requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from consumer.tools import dispatcher, http_protocol
from consumer.tools.results import Tool, ToolOutcome
from consumer.tools.server import listening, serving, tools_app
from tests.support.tools_fixture import ADA, BEN, MCP_HEADERS, ToolsFixture, bearer, call, gateway, tool_text

GET = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@pytest.fixture
def tools() -> ToolsFixture:
    return ToolsFixture()


@asynccontextmanager
async def connection(client: httpx.AsyncClient) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Everything that the server sends until it closes the connection."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def send_forever(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(10):
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()


def one_huge_header() -> bytes:
    return GET + b"x: " + b"x" * 300_000


def many_headers() -> bytes:
    return GET + b"".join(b"x-%d: y\r\n" % number for number in range(200)) + b"\r\n"


def a_huge_request_line() -> bytes:
    return b"GET /" + b"x" * 300_000


@pytest.mark.parametrize("head", [one_huge_header, many_headers, a_huge_request_line])
async def test_a_request_with_too_large_headers_gets_431(tools: ToolsFixture, head: Callable[[], bytes]) -> None:
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write(head())
        assert (await ended(reader)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("sent", [b"", GET])
async def test_a_connection_without_complete_headers_is_closed(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 0.2)
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write(sent)
        assert await ended(reader) == b""


async def test_an_idle_connection_that_sends_blank_lines_is_closed(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT", 0.2)
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write(GET + b"\r\n")
        assert b" 200 " in await reader.readline()
        await asyncio.sleep(0.05)
        writer.write(b"\r\n")
        await ended(reader)


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools/recall"])
async def test_a_body_that_does_not_arrive_is_refused_within_the_budget(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(dispatcher, "BUDGET", 0.2)
    headers = b"".join(f"{name}: {value}\r\n".encode() for name, value in (MCP_HEADERS | bearer(ADA)).items())
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n".encode() + headers + b"\r\n"
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write(head + b"{")
        async with asyncio.timeout(5):
            assert (await reader.readline()).split()[1] in (b"408", b"504")


async def test_an_agent_may_send_only_its_share_of_bodies_at_once(tools: ToolsFixture) -> None:
    headers = b"".join(f"{name}: {value}\r\n".encode() for name, value in (MCP_HEADERS | bearer(ADA)).items())
    head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n" + headers + b"\r\n"
    async with tools.open() as client:
        slow = [await asyncio.open_connection(client.base_url.host, client.base_url.port) for _ in range(20)]
        for _, writer in slow:
            writer.write(head + b"{")
        reads = [asyncio.create_task(reader.readline()) for reader, _ in slow]
        await asyncio.wait(reads, timeout=1)
        assert [read.result().split()[1] for read in reads if read.done()] == [b"429"] * 12
        reply = await client.post("/mcp", json=call("hindsight_recall", query="x"), headers=MCP_HEADERS | bearer(BEN))
        assert not tool_text(reply)[1]
        for _, writer in slow:
            writer.close()
        await asyncio.wait(reads)


async def test_while_paperclip_is_down_only_small_bodies_are_read(tools: ToolsFixture) -> None:
    tools.paperclip.down = True
    async with tools.open() as client:
        body = call("hindsight_retain", content="x" * 70_000)
        assert (await client.post("/mcp", json=body, headers=MCP_HEADERS | bearer(ADA))).status_code == 413


async def test_a_body_that_never_ends_closes_the_connection(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_MESSAGE", 2_000_000)
    head = b"POST /v1/tools/recall HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000000\r\n\r\n"
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write(head)
        assert b" 401 " in await reader.readline()
        with pytest.raises(ConnectionError):
            await send_forever(writer)


async def test_a_new_connection_replaces_an_idle_one_at_the_limit(
    tools: ToolsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 5)
    async with tools.open() as client:
        idle = [await asyncio.open_connection(client.base_url.host, client.base_url.port) for _ in range(20)]
        reply = await client.post("/v1/tools/recall", json={"query": "trains"}, headers=bearer(ADA))
        assert reply.status_code == 200
        reads = [asyncio.create_task(reader.read()) for reader, _ in idle]
        await asyncio.wait(reads, timeout=0.5)
        assert sum(read.done() for read in reads) >= 15
        for _, writer in idle:
            writer.close()
        await asyncio.wait(reads)


async def test_too_many_pipelined_requests_close_the_connection(tools: ToolsFixture) -> None:
    async with tools.open() as client, connection(client) as (reader, writer):
        writer.write((GET + b"\r\n") * 1000)
        assert (await ended(reader)).count(b"HTTP/1.1 200") <= http_protocol.MAX_PIPELINED + 1


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_mcp_refuses_every_method_but_post(tools: ToolsFixture, method: str) -> None:
    async with tools.open() as client:
        reply = await client.request(method, "/mcp", headers={"accept": "text/event-stream"} | bearer(ADA), timeout=5)
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert tools.counted == {(Tool.OTHER, ToolOutcome.DENIED): 1}


async def test_mcp_with_a_trailing_slash_is_served_without_a_redirect(tools: ToolsFixture) -> None:
    async with tools.open() as client:
        body = call("hindsight_recall", query="trains")
        reply = await client.post("/mcp/", json=body, headers=MCP_HEADERS | gateway())
        assert tool_text(reply) == ("No relevant memories found.", False)
        assert (await client.post("/v1/tools/recall/", json={"query": "x"}, headers=bearer(ADA))).status_code == 404


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools/recall"])
async def test_thousands_of_arguments_are_refused(tools: ToolsFixture, path: str) -> None:
    arguments = {f"a{number}": 1 for number in range(60_000)}
    body = call("hindsight_recall", **arguments) if path == "/mcp" else arguments
    async with tools.open() as client:
        reply = await client.post(path, content=json.dumps(body), headers=MCP_HEADERS | bearer(ADA))
    assert "too many arguments" in reply.text


async def test_keep_alive_outlasts_the_60_seconds_of_proxies(tools: ToolsFixture) -> None:
    assert http_protocol.KEEP_ALIVE > 60
    app = tools_app(tools.dispatcher, version="1", allowed_hosts=["*"])
    with listening("127.0.0.1", 0) as bound:
        async with serving(app, bound, grace=1):
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(*bound.getsockname())
                writer.write(GET + b"\r\n")
                assert b"200" in await reader.readline()
                writer.close()
