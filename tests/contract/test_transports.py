"""One contract for both senders (`consumer.http.backends`), on real local sockets."""

import asyncio
import gzip
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trustme

from consumer.errors import SettingsError
from consumer.http.backends import open_transport
from consumer.http.transport import (
    MAX_BODY,
    ConnectError,
    ConnectionLost,
    Request,
    RequestTimeout,
    Response,
    ResponseTooLarge,
    Transport,
    TransportError,
)
from tests.contract.servers import Answer, Plain, Proxy, Seen, Server, closing, echo, raw, reply, resetting

Open = Callable[..., AbstractAsyncContextManager[Transport]]
LIMIT = 4
PATH = "/v1/default/banks/a%3A%3Ab%2Fc%40%2B/memories?q=%3A%20x"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT_"):
            monkeypatch.delenv(name)


@pytest.fixture(params=["httpx", "pyreqwest"])
def opened(request: pytest.FixtureRequest) -> Open:
    def opened(limit: int = LIMIT, ca_file: Path | None = None) -> AbstractAsyncContextManager[Transport]:
        return open_transport(request.param, limit, ca_file=ca_file)

    return opened


@pytest.fixture
async def send(opened: Open) -> AsyncIterator[Transport]:
    async with opened() as send:
        yield send


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
async def tls_server(ca: trustme.CA) -> AsyncIterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    async with Server(tls=context) as server:
        yield server


def post(url: str, body: bytes = b"{}", timeout: float = 10.0, **headers: str) -> Request:
    return Request("POST", url, headers, body, timeout)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


# What goes out and what comes back.


async def test_request_is_sent_unchanged(send: Transport, server: Server) -> None:
    headers = {"Authorization": "Bearer key", "User-Agent": "paperclip-memory/1", "Content-Type": "application/json"}
    await send(Request("POST", server.url + PATH, headers, b'{"a":1}'))
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == ("POST", PATH, b'{"a":1}')
    assert seen.headers["authorization"] == "Bearer key"
    assert seen.headers["user-agent"] == "paperclip-memory/1"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert seen.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_request_without_a_body_is_sent(send: Transport, server: Server, method: str) -> None:
    await send(Request(method, server.url + PATH))
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == (method, PATH, b"")


async def test_response_is_complete_and_its_header_names_are_lower_case(send: Transport, server: Server) -> None:
    server.answer = reply(429, b"\xff\x00\xc3\xa9", retry_after="7", X_MiXed="Kept As Sent")
    answer = await send(post(server.url))
    assert (answer.status, answer.body) == (429, b"\xff\x00\xc3\xa9")
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["x-mixed"] == "Kept As Sent"
    assert all(name == name.lower() for name in answer.headers)


async def test_non_ascii_header_does_not_break_the_response(send: Transport, server: Server) -> None:
    server.answer = raw(b"HTTP/1.1 200 OK\r\nX-Odd: caf\xe9\r\nX-Even: yes\r\nContent-Length: 2\r\n\r\nok")
    answer = await send(post(server.url))
    assert (answer.status, answer.body, answer.headers["x-even"]) == (200, b"ok", "yes")


async def test_last_of_two_equal_headers_counts(send: Transport, server: Server) -> None:
    server.answer = raw(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n")
    assert (await send(post(server.url))).headers["x-a"] == "2"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_returned_and_not_followed(send: Transport, server: Server, status: int) -> None:
    server.answer = reply(status, b"", location="/elsewhere")
    answer = await send(post(server.url + "/trailing/"))
    assert (answer.status, answer.headers["location"]) == (status, "/elsewhere")
    assert [seen.target for seen in server.seen] == ["/trailing/"]


async def test_a_header_of_9000_bytes_is_read(send: Transport, server: Server) -> None:
    server.answer = reply(set_cookie="session=" + "x" * 9000, x_last="read")
    answer = await send(post(server.url))
    assert (len(answer.headers["set-cookie"]), answer.headers["x-last"]) == (9008, "read")


async def test_cookies_are_not_kept(send: Transport, server: Server) -> None:
    server.answer = reply(set_cookie="session=1; Path=/")
    await send(post(server.url))
    await send(post(server.url))
    assert ["cookie" in seen.headers for seen in server.seen] == [False, False]


async def test_gzip_response_is_decoded(send: Transport, server: Server) -> None:
    server.answer = reply(body=gzip.compress(b'{"a":1}'), content_encoding="gzip")
    assert (await send(post(server.url))).body == b'{"a":1}'


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 10_000_000])
async def test_bodies_of_any_size_are_sent_and_received(send: Transport, server: Server, size: int) -> None:
    body = os.urandom(size)
    server.answer = echo
    answer = await send(post(server.url, body))
    assert server.seen[0].headers.get("content-length", "0") == str(size)
    assert answer.body == body


async def test_chunked_response_is_read(send: Transport, server: Server) -> None:
    server.answer = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert (await send(post(server.url))).body == b"abcde"


async def endless(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        await writer.drain()


TOO_LARGE: dict[str, Answer] = {
    "an endless body": endless,
    "a gzip bomb": reply(body=gzip.compress(bytes(MAX_BODY + 1)), content_encoding="gzip"),
}


@pytest.mark.parametrize("answer", TOO_LARGE.values(), ids=TOO_LARGE.keys())
async def test_a_body_over_the_limit_is_not_read_further(send: Transport, server: Server, answer: Answer) -> None:
    server.answer = answer
    with pytest.raises(ResponseTooLarge, match="larger than 32 MiB"):
        await send(post(server.url, timeout=60))
    server.answer = reply()
    assert (await send(post(server.url))).status == 200


async def test_a_body_of_the_limit_is_read(send: Transport, server: Server) -> None:
    server.answer = reply(body=gzip.compress(bytes(MAX_BODY), 1), content_encoding="gzip")
    assert len((await send(post(server.url, timeout=60))).body) == MAX_BODY


# What fails.


async def test_refused_connection_is_a_connect_error(send: Transport) -> None:
    with pytest.raises(ConnectError, match=r"(?i)refused|connect"):
        await send(post(f"http://127.0.0.1:{closed_port()}/"))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a b"])
async def test_unknown_host_is_a_connect_error(send: Transport, host: str) -> None:
    with pytest.raises(ConnectError):
        await send(post(f"http://{host}/"))


BROKEN: dict[str, Answer] = {
    "reset before the reply": resetting,
    "closed before the reply": closing(),
    "closed inside the head": closing(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "half a body": closing(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
    "half a chunked body": closing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
    "no HTTP": closing(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "no gzip": reply(body=b"not gzip", content_encoding="gzip"),
    "half a gzip body": reply(body=gzip.compress(b"whole")[:-9], content_encoding="gzip"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
async def test_connection_that_ends_early_is_lost_and_nothing_is_sent_twice(
    send: Transport, server: Server, answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(ConnectionLost):
        await send(post(server.url))
    assert len(server.seen) == 1


QUOTED = {
    "more than was announced": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}a comment's words\r\n\r\n",
    "a status line": b"a comment's words\r\n\r\n",
    "a header": b"HTTP/1.1 200 OK\r\na comment's words\r\nContent-Length: 0\r\n\r\n",
    "a chunk's size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na comment's words\r\n",
    "a large header": b"HTTP/1.1 200 OK\r\nX: " + b"a comment's words" * 2000 + b"\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", QUOTED.values(), ids=QUOTED.keys())
async def test_errors_do_not_quote_the_response(send: Transport, server: Server, answer: bytes) -> None:
    """Errors go into logs and dead letters' headers."""
    server.answer = closing(answer)
    said = []
    for _ in range(2):  # what follows a whole reply spoils the next
        try:
            await send(post(server.url))
        except TransportError as error:
            said += [str(error), str(error.__cause__)]
    assert "words" not in " ".join(said)


async def test_reset_inside_the_body_is_connection_lost(send: Transport, server: Server) -> None:
    async def answer(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_RD)
        writer.transport.abort()

    server.answer = answer
    with pytest.raises(ConnectionLost):
        await send(post(server.url))
    assert len(server.seen) == 1


async def test_post_on_a_closed_kept_connection_is_not_repeated(send: Transport, server: Server) -> None:
    await send(post(server.url))
    server.answer = resetting
    with pytest.raises(ConnectionLost):
        await send(post(server.url))
    assert len(server.seen) == 2


async def silence(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def half_then_silence(seen: Seen, writer: asyncio.StreamWriter) -> None:
    await raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")(seen, writer)
    await silence(seen, writer)


@pytest.mark.parametrize("answer", [silence, half_then_silence])
async def test_incomplete_response_is_a_request_timeout(send: Transport, server: Server, answer: Answer) -> None:
    server.answer = answer
    ends = await asyncio.gather(
        *(send(post(server.url, timeout=0.2)) for _ in range(2 * LIMIT)), return_exceptions=True
    )
    assert [type(end) for end in ends] == [RequestTimeout] * (2 * LIMIT)
    server.answer = reply()
    assert (await send(post(server.url))).status == 200


async def test_wait_for_a_free_connection_counts_for_the_timeout(opened: Open, server: Server) -> None:
    server.answer = silence
    async with opened(limit=1) as send:
        first = asyncio.ensure_future(send(post(server.url, timeout=60)))
        await server.until(lambda: len(server.seen) == 1)
        with pytest.raises(RequestTimeout):
            await send(post(server.url, timeout=0.1))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    assert len(server.seen) == 1


@pytest.mark.parametrize("answer", [silence, half_then_silence])
async def test_cancelled_requests_leave_the_pool_usable(send: Transport, server: Server, answer: Answer) -> None:
    server.answer = answer
    tasks = [asyncio.ensure_future(send(post(server.url, timeout=60))) for _ in range(LIMIT)]
    await server.until(lambda: len(server.seen) == LIMIT)
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * LIMIT
    server.answer = reply()
    answers = await asyncio.gather(*(send(post(server.url)) for _ in range(LIMIT)))
    assert [answer.status for answer in answers] == [200] * LIMIT


async def test_httpx_closes_the_connection_of_a_cancelled_request(server: Server) -> None:
    """pyreqwest lets it run on until its time-out (see its module)."""
    server.answer = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    async with open_transport("httpx", LIMIT) as send:
        task = asyncio.ensure_future(send(post(server.url, timeout=60)))
        await server.until(lambda: len(server.seen) == 1)
        task.cancel()
        await server.until(lambda: server.connections == 0)


# Connections.


async def test_connections_are_limited_and_reused(send: Transport, server: Server) -> None:
    waiting: list[asyncio.Event] = []

    async def in_fours(seen: Seen, writer: asyncio.StreamWriter) -> None:
        waiting.append(asyncio.Event())
        if len(waiting) % LIMIT == 0:
            for event in waiting:
                event.set()
        await waiting[-1].wait()
        await reply()(seen, writer)

    server.answer = in_fours
    answers = await asyncio.gather(*(send(post(server.url)) for _ in range(10 * LIMIT)))
    assert len(answers) == len(server.seen) == 10 * LIMIT
    assert server.peak == LIMIT
    assert server.accepted == LIMIT


async def test_server_restart_behind_kept_connections_is_survived(send: Transport, server: Server) -> None:
    async def everyone(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await server.until(lambda: len(server.seen) >= LIMIT)
        await reply()(seen, writer)

    server.answer = everyone
    await asyncio.gather(*(send(post(server.url)) for _ in range(LIMIT)))
    assert server.connections == LIMIT
    await server.stop()
    await server.start()
    server.answer = reply()
    server.seen.clear()
    ends = await asyncio.gather(
        *(send(post(server.url, str(number).encode())) for number in range(LIMIT)), return_exceptions=True
    )
    assert all(isinstance(end, ConnectionLost) or (isinstance(end, Response) and end.status == 200) for end in ends)
    assert len(server.seen) == sum(isinstance(end, Response) for end in ends)
    again = await asyncio.gather(*(send(post(server.url)) for _ in range(LIMIT)))
    assert [answer.status for answer in again] == [200] * LIMIT


async def test_requests_succeed_after_a_server_comes_back(send: Transport, server: Server) -> None:
    await send(post(server.url))
    await server.stop()
    with pytest.raises((ConnectError, ConnectionLost)):
        await send(post(server.url))
    with pytest.raises(ConnectError):
        await send(post(server.url))
    await server.start()
    assert (await send(post(server.url))).status == 200


# TLS.


async def test_ca_file_is_trusted(opened: Open, tls_server: Server, ca_file: Path) -> None:
    async with opened(ca_file=ca_file) as send:
        assert (await send(post(tls_server.url + PATH))).status == 200
    assert tls_server.seen[0].target == PATH


async def test_ca_of_ssl_cert_file_is_trusted(
    opened: Open, tls_server: Server, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
    async with opened() as send:
        assert (await send(post(tls_server.url))).status == 200


async def test_unknown_ca_is_a_connect_error(send: Transport, tls_server: Server) -> None:
    with pytest.raises(ConnectError, match=r"(?i)certificate"):
        await send(post(tls_server.url))
    assert tls_server.seen == []


async def test_certificate_for_another_host_is_a_connect_error(opened: Open, tls_server: Server, ca_file: Path) -> None:
    async with opened(ca_file=ca_file) as send:
        with pytest.raises(ConnectError, match=r"(?i)certificate"):
            await send(post(f"https://localhost:{tls_server.port}/"))
    assert tls_server.seen == []


async def test_plain_server_behind_https_is_a_connect_error(send: Transport) -> None:
    async with Plain() as server:
        with pytest.raises(ConnectError):
            await send(post(f"https://127.0.0.1:{server.port}/"))


# Proxies.


async def test_http_goes_through_http_proxy(opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//user:pass@"))
        async with opened() as send:
            assert (await send(post(server.url + PATH, b"body"))).status == 200
    assert [seen.target for seen in proxy.seen] == [server.url + PATH]
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
    assert [(seen.target, seen.body) for seen in server.seen] == [(PATH, b"body")]


async def test_https_request_goes_through_a_tunnel(
    opened: Open, tls_server: Server, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with opened(ca_file=ca_file) as send:
            assert (await send(post(tls_server.url + PATH))).status == 200
    assert [(seen.method, seen.target) for seen in proxy.seen] == [("CONNECT", f"127.0.0.1:{tls_server.port}")]
    assert tls_server.seen[0].target == PATH


async def test_all_proxy_is_used_for_http(opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with opened() as send:
            await send(post(server.url))
    assert len(proxy.seen) == len(server.seen) == 1


async def test_host_in_no_proxy_is_asked_directly(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
    async with opened() as send:
        assert (await send(post(server.url))).status == 200


async def test_missing_proxy_is_a_connect_error(opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    async with opened() as send:
        with pytest.raises(ConnectError):
            await send(post(server.url))
    assert server.seen == []


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_that_requires_credentials_is_a_connect_error(
    opened: Open, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with Proxy(refusal) as proxy:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", proxy.url)
        async with opened() as send:
            with pytest.raises(ConnectError):
                await send(post(f"{scheme}://hindsight.invalid/"))
    assert len(proxy.seen) == 1


# Choosing.


def test_unknown_backend_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="'curl' is not one of httpx, pyreqwest"):
        open_transport("curl", 1)


def test_missing_extra_is_a_settings_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pyreqwest.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "consumer.http.pyreqwest_transport", raising=False)
    monkeypatch.setitem(sys.modules, "pyreqwest", None)
    with pytest.raises(SettingsError, match=r"paperclip-memory\[fast\]"):
        open_transport("pyreqwest", 1)


def test_other_missing_module_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "consumer.http.httpx_transport", raising=False)
    monkeypatch.setitem(sys.modules, "httpx_aiohttp.transport", None)
    with pytest.raises(ModuleNotFoundError, match=r"httpx_aiohttp\.transport"):
        open_transport("httpx", 1)


def test_only_the_chosen_library_is_imported() -> None:
    code = "import sys, consumer.http.backends as s; s.open_transport('httpx', 1); sys.exit('pyreqwest' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
