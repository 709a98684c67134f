"""One HTTP server for both ways to call: MCP at `/mcp`, REST beside it."""

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
from consumer.settings.validation import label
from consumer.tools.dispatcher import Desk, Visit
from consumer.tools.mcp_server import mcp_app
from consumer.tools.problems import problem
from consumer.tools.rest import http_error, rest_routes
from consumer.tools.results import Answer, Tool, ToolOutcome

ANY_HOST = "*"
BACKLOG = 2048
_FOREIGN = "This server is not known under that name; its operator can add it to tools_allowed_hosts."


def tools_app(desk: Desk, *, version: str, allowed_hosts: Sequence[str]) -> Starlette:
    """The whole application.

    Args:
        allowed_hosts: what a Host header, and an Origin if there is one, may name: `host` with any port, `host:port`,
            or `*`. It keeps web pages from calling through somebody's browser (DNS rebinding).
    """
    app = mcp_app(desk, version)
    app.router.routes.extend(rest_routes(desk, version))
    app.add_exception_handler(HTTPException, http_error)
    app.add_middleware(_Hosts, allowed=frozenset(host.lower() for host in allowed_hosts), desk=desk)
    return app


class _Hosts:
    """Answers nobody who asks for another host."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str], desk: Desk) -> None:
        self._app = app
        self._allowed = allowed
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_HOST not in self._allowed and not self._own(scope["headers"]):
            answer = Answer(_FOREIGN, ToolOutcome.DENIED, 421)
            self._desk.count(Tool.OTHER, Visit(asyncio.get_running_loop().time(), answer, admitted=False), answer)
            await problem(answer)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _own(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        named = [*hosts, *(urlsplit(origin).netloc or origin for origin in origins)]
        return len(hosts) == 1 and all(self._known(host.lower()) for host in named)

    def _known(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        return host in self._allowed or (port.isdigit() and name in self._allowed)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; for port 0, on a free one.

    Raises:
        SettingsError: nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sets TCP_NODELAY on no socket without, and each answer would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        problem_text = (
            f"{label('tools_port')} = {port}: cannot listen on {host} ({error.strerror}); set another port, or 0"
        )
        raise SettingsError([problem_text]) from error
    with bound:
        yield bound


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's, not this server's."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, bound: socket.socket, grace: float) -> AsyncIterator[asyncio.Task[None]]:
    """Serve until the block ends, then let calls in flight end within `grace` seconds. Gives the server's task."""
    config = uvicorn.Config(
        app,
        http="httptools",
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
