"""The HTTP server of the tools: MCP at `/mcp`, REST at `/v1`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from consumer.errors import SettingsError
from consumer.settings.types import label
from consumer.tools.dispatcher import CallContext, ToolDispatcher
from consumer.tools.http_protocol import KEEP_ALIVE, LimitedHttpProtocol
from consumer.tools.mcp_server import mcp_app
from consumer.tools.problems import problem_response
from consumer.tools.rest import http_error, rest_routes
from consumer.tools.results import Tool, ToolOutcome, ToolResult

ANY_HOST = "*"
BACKLOG = 2048
_UNKNOWN_HOST = "Unknown host: the server's operator can add it to tools_allowed_hosts."


def tools_app(dispatcher: ToolDispatcher, *, version: str, allowed_hosts: Sequence[str]) -> Starlette:
    """The complete application.

    Args:
        allowed_hosts: the hosts that the Host header, and the Origin header if sent, may name: `host` with any port,
            `host:port`, or `*`. This protects against DNS rebinding (web pages that call through a user's browser).
    """
    app = mcp_app(dispatcher, version)
    app.router.routes.extend(rest_routes(dispatcher, version))
    app.router.redirect_slashes = False  # behind a proxy it would redirect to http
    app.add_exception_handler(HTTPException, http_error)
    hosts = frozenset(host.lower() for host in allowed_hosts)
    app.add_middleware(_HostCheckMiddleware, allowed=hosts, dispatcher=dispatcher)
    return app


class _HostCheckMiddleware:
    """Refuses requests for another host."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str], dispatcher: ToolDispatcher) -> None:
        self._app = app
        self._allowed = allowed
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_HOST not in self._allowed and not self._is_allowed(scope["headers"]):
            result = ToolResult(_UNKNOWN_HOST, ToolOutcome.DENIED, 421)
            self._dispatcher.count(Tool.OTHER, CallContext.refused(result), result)
            await problem_response(result)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        names = [*hosts, *(urlsplit(origin).netloc or origin for origin in origins)]
        return len(hosts) == 1 and all(self._is_known(name.lower()) for name in names)

    def _is_known(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        return host in self._allowed or (port.isdigit() and name in self._allowed)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; port 0 takes a free one.

    Raises:
        SettingsError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit protocol: without, asyncio does not set TCP_NODELAY, and every response would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        message = f"{label('tools_port')} = {port}: cannot listen on {host} ({error.strerror}); set another port, or 0"
        raise SettingsError([message]) from error
    with bound:
        yield bound


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process handles signals, not this server."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, bound: socket.socket, grace: float) -> AsyncIterator[asyncio.Task[None]]:
    """Serve until the block ends, then let running calls finish within `grace` seconds. Yields the server's task."""
    config = uvicorn.Config(
        app,
        http=LimitedHttpProtocol,
        timeout_keep_alive=KEEP_ALIVE,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, int(grace)),
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]), name="tools")
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield task
    finally:
        server.should_exit = True
        await task
