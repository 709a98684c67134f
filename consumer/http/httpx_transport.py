"""The default transport: httpx's requests and responses over aiohttp's connections.

httpx's own pool collapses above 30 requests in flight; aiohttp's does not.
"""

import asyncio
import io
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp.transport import AiohttpResponseStream, AiohttpTransport
from yarl import URL

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
)

_IDLE_SECONDS = 4.0  # uvicorn and Node close idle connections after 5 s: be first
_LARGE = 1 << 20  # aiohttp warns of larger bodies in one piece; a file it writes in chunks
_MAX_HEADER = (
    400 * 1024
)  # what the other backend's library allows; aiohttp's own limit of 8 kB is less than servers use
_NO_TIMEOUT = aiohttp.ClientTimeout()  # ours spans the whole exchange


class _Transport(AiohttpTransport):
    """httpx-aiohttp's transport, except that the URL goes out as it was given, aiohttp's own errors come through
    (its table calls a reset a connect time-out), and proxies of the environment count.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        super().__init__(client=session)
        self._session = session
        self._proxies: dict[tuple[str, str, int | None], str | None] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = request.content
        reply = await self._session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=request.headers,
            data=(content if len(content) < _LARGE else io.BytesIO(content)) or None,
            allow_redirects=False,
            timeout=_NO_TIMEOUT,
            proxy=self._proxy(request.url),
        )
        return httpx.Response(reply.status, headers=reply.raw_headers, stream=AiohttpResponseStream(reply))

    def _proxy(self, url: httpx.URL) -> str | None:
        origin = (url.scheme, url.host, url.port)
        if origin not in self._proxies:
            proxies = getproxies()
            proxy = proxies.get(url.scheme) or proxies.get("all")
            self._proxies[origin] = None if proxy_bypass(url.netloc.decode("ascii")) else proxy
        return self._proxies[origin]


@asynccontextmanager
async def open_transport(limit: int, *, ca_file: Path | None = None) -> AsyncIterator[Transport]:
    """See `consumer.http.backends.open_transport`."""
    context = ssl.create_default_context()  # honours SSL_CERT_FILE and SSL_CERT_DIR
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, ssl=context, keepalive_timeout=_IDLE_SECONDS),
        headers={"Accept-Encoding": "gzip"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # `_read_body` does it, up to `MAX_BODY`
        max_line_size=_MAX_HEADER,
        max_field_size=_MAX_HEADER,
    )
    async with session:
        transport = _Transport(session)

        async def send(request: Request) -> Response:
            try:
                async with asyncio.timeout(request.timeout):
                    return await _exchange(transport, request)
            except TimeoutError as error:
                raise RequestTimeout(f"no complete response within {request.timeout:g} s") from error
            except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
                raise ConnectError(_reason(error)) from error
            except (aiohttp.InvalidURL, httpx.InvalidURL, UnicodeError) as error:
                raise ConnectError("the URL has no valid host") from error
            except aiohttp.ClientResponseError:
                # Its text and its cause's quote the response, which can hold a comment.
                raise ConnectionLost("the response is not HTTP") from None
            except (aiohttp.ClientError, httpx.HTTPError, OSError) as error:
                raise ConnectionLost(_reason(error)) from error

        yield send


async def _exchange(transport: _Transport, request: Request) -> Response:
    sent = httpx.Request(request.method, request.url, headers=request.headers, content=request.body)
    response = await transport.handle_async_request(sent)
    async with aclosing(response):
        body = await _read_body(response)
    if response.status_code == PROXY_REFUSED:
        raise ConnectError("the proxy requires credentials")
    headers = {name.lower().decode("ascii"): value.decode("latin-1") for name, value in response.headers.raw}
    return Response(response.status_code, headers, body)


async def _read_body(response: httpx.Response) -> bytes:
    """Read the body, and decompress it piece by piece, so that a small response cannot fill the memory."""
    compressed = response.headers.get("content-encoding", "").strip().lower() == "gzip"
    gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if compressed else None
    chunks, size = list[bytes](), 0
    try:
        async for raw in response.aiter_raw():
            chunk = raw if gzip is None else gzip.decompress(raw, MAX_BODY + 1 - size)
            size += len(chunk)
            if size > MAX_BODY:
                raise ResponseTooLarge
            chunks.append(chunk)
    except zlib.error as error:
        raise ConnectionLost("the body is not gzip") from error
    if gzip is not None and chunks and not gzip.eof:
        raise ConnectionLost("the body is not complete gzip")
    return b"".join(chunks)


def _reason(error: Exception) -> str:
    # aiohttp names the TLS settings of every connection, also of those without TLS.
    return str(error).replace(" ssl:default", "") or type(error).__name__
