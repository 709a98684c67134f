"""The fast transport (extra `[fast]`): Rust's reqwest, at a third of the default one's CPU."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from pyreqwest import runtime
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import NetworkError, PyreqwestError, RequestTimeoutError
from pyreqwest.http import HeaderMap, Url
from pyreqwest.response import ResponseBodyReader

from consumer.http.transport import (
    MAX_BODY,
    PROXY_REFUSED,
    ConnectError,
    ConnectionLost,
    Request,
    RequestTimeout,
    Response,
    ResponseTooLarge,
    Transport,
    TransportError,
)

_IDLE = timedelta(seconds=4)  # uvicorn and Node close idle connections after 5 s: be first

# On pyreqwest's single-threaded runtime all replies wait while it waits for the GIL: 3,100 instead of 4,500 retains a
# second with 256 in flight (`make bench`). More than one thread costs a fifth more CPU and brings nothing.
runtime.runtime_worker_threads(1)


@asynccontextmanager
async def open_transport(limit: int, *, ca_file: Path | None = None) -> AsyncIterator[Transport]:
    """See `consumer.http.backends.open_transport`.

    A cancelled request frees its slot at once, but runs on in the background until its response or timeout, because
    pyreqwest 0.15 does not abort it. So the limit is enforced here, not by `max_connections`.
    """
    slots = asyncio.Semaphore(limit)
    async with _builder(limit, ca_file).build() as client:

        async def send(request: Request) -> Response:
            left = request.timeout
            if slots.locked():
                left = await _wait(slots, request.timeout)
            else:
                await slots.acquire()  # does not wait
            try:
                call = (
                    client.request(request.method, _url(request.url))
                    .headers(request.headers)
                    .timeout(timedelta(seconds=left))
                )
                if request.body:
                    call = call.body_bytes(request.body)
                async with call.build_streamed() as response:
                    if response.status == PROXY_REFUSED:
                        raise ConnectError("the proxy requires credentials")
                    body = await _read_body(response.body_reader)
                    return Response(response.status, _headers(response.headers), body)
            except PyreqwestError as error:
                raise _send_error(error, request.timeout) from error
            finally:
                slots.release()

        yield send


async def _read_body(reader: ResponseBodyReader) -> bytes:
    chunks, size = list[bytes](), 0
    while (chunk := await reader.read_chunk()) is not None:
        size += len(chunk)
        if size > MAX_BODY:
            raise ResponseTooLarge
        chunks.append(chunk.to_bytes())
    return b"".join(chunks)


async def _wait(slots: asyncio.Semaphore, timeout: float) -> float:
    """Take a slot; returns the seconds that are left."""
    now = asyncio.get_running_loop().time
    deadline = now() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            await slots.acquire()
    except TimeoutError as error:
        raise RequestTimeout(f"no free connection within {timeout:g} s") from error
    return max(0.001, deadline - now())


def _builder(limit: int, ca_file: Path | None) -> ClientBuilder:
    builder = (
        ClientBuilder()
        .runtime_multithreaded(enable=True)
        .follow_redirects(enable=False)
        .gzip(enable=True)
        .brotli(enable=False)
        .zstd(enable=False)
        .deflate(enable=False)
        .pool_idle_timeout(_IDLE)
        .pool_max_idle_per_host(limit)
    )
    if ca_file is not None:
        return builder.add_root_certificate_pem(ca_file.read_bytes())
    return builder


def _send_error(error: PyreqwestError, timeout: float) -> TransportError:
    if isinstance(error, RequestTimeoutError):
        return RequestTimeout(f"no complete response within {timeout:g} s")
    causes = [cause["message"] for cause in getattr(error, "details", {}).get("causes") or []]
    reason = causes[-1] if causes else error.message
    # The library's ConnectError also covers a connection that ended after the request was sent.
    if isinstance(error, NetworkError) and "client error (Connect)" in causes:
        return ConnectError(reason)
    return ConnectionLost(reason)


def _url(url: str) -> Url:
    try:
        return Url(url)
    except ValueError as error:
        raise ConnectError("the URL has no valid host") from error


def _headers(headers: HeaderMap) -> dict[str, str]:
    try:
        return dict(headers.items())
    except ValueError:  # one of them is not ASCII
        return {name: value for name in headers for value in _readable(headers, name)}


def _readable(headers: HeaderMap, name: str) -> list[str]:
    try:
        return headers.getall(name)
    except ValueError:
        return []
