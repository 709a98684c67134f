"""The fast sender (extra `[fast]`): Rust's reqwest, a third of the CPU of the default one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from pyreqwest import runtime
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import NetworkError, PyreqwestError, RequestTimeoutError
from pyreqwest.http import HeaderMap, Url

from consumer.http.transport import PROXY_REFUSED, Broken, Reply, Request, Send, SendError, TimedOut, Unreachable

_IDLE = timedelta(seconds=4)  # uvicorn and Node close idle connections after 5 s: be first

# On pyreqwest's single-threaded runtime all replies wait while it waits for the GIL: 3,100 instead of 4,500 retains a
# second with 256 in flight (`make bench`). More than one thread costs a fifth more CPU and brings nothing.
runtime.runtime_worker_threads(1)


@asynccontextmanager
async def open_sender(limit: int, *, ca_file: Path | None = None) -> AsyncIterator[Send]:
    """See `consumer.http.backends.open_sender`.

    A cancelled request frees its place at once, but runs on in the background until its reply or its time-out:
    pyreqwest 0.15 lets go of it without aborting it. So the limit is kept here, not by its `max_connections`.
    """
    places = asyncio.Semaphore(limit)
    async with _builder(limit, ca_file).build() as client:

        async def send(request: Request) -> Reply:
            left = request.timeout
            if places.locked():
                left = await _wait(places, request.timeout)
            else:
                await places.acquire()  # does not wait
            try:
                call = (
                    client.request(request.method, _url(request.url))
                    .headers(request.headers)
                    .timeout(timedelta(seconds=left))
                )
                if request.body:
                    call = call.body_bytes(request.body)
                response = await call.build().send()
                if response.status == PROXY_REFUSED:
                    raise Unreachable("the proxy wants credentials")
                return Reply(response.status, _headers(response.headers), (await response.bytes()).to_bytes())
            except PyreqwestError as error:
                raise _send_error(error, request.timeout) from error
            finally:
                places.release()

        yield send


async def _wait(places: asyncio.Semaphore, timeout: float) -> float:
    """Take a place; the seconds that are left then."""
    now = asyncio.get_running_loop().time
    deadline = now() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            await places.acquire()
    except TimeoutError as error:
        raise TimedOut(f"no free connection within {timeout:g} s") from error
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


def _send_error(error: PyreqwestError, timeout: float) -> SendError:
    if isinstance(error, RequestTimeoutError):
        return TimedOut(f"no whole reply within {timeout:g} s")
    causes = [cause["message"] for cause in getattr(error, "details", {}).get("causes") or []]
    reason = causes[-1] if causes else error.message
    # The library's ConnectError also covers a connection that ended after the request was sent.
    if isinstance(error, NetworkError) and "client error (Connect)" in causes:
        return Unreachable(reason)
    return Broken(reason)


def _url(url: str) -> Url:
    try:
        return Url(url)
    except ValueError as error:
        raise Unreachable("the URL names no host that could be asked") from error


def _headers(headers: HeaderMap) -> dict[str, str]:
    try:
        return dict(headers.items())
    except ValueError:  # one of them is no ASCII
        return {name: value for name in headers for value in _readable(headers, name)}


def _readable(headers: HeaderMap, name: str) -> list[str]:
    try:
        return headers.getall(name)
    except ValueError:
        return []
