"""A stand-in for Paperclip's REST API that serves the recording and objects that are added to it.

It answers as the real server does where it matters: 404 with a reason for a missing object, 500 for an id that is not a
UUID, and, if it has a key, 404 for objects and 401 for everything else to callers without the key.
"""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from aiohttp import web

from demo import recording
from demo.recording import Json
from schemas.paperclip import UUID_PATTERN

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_COMMENTS = 500


class StandIn:
    """An async context manager. The served objects can be changed while it runs.

    Args:
        key: the required bearer key; None: no key is required.

    Attributes:
        url: its base URL.
        requests: method and path of each request, in order.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self.company = recording.company()
        self.agent_me = recording.agent_me()
        self.agents = _by_id(recording.agents())
        self.issues = _by_id(recording.issues())
        self.runs = _by_id(recording.runs())
        self.comments = _by_id(recording.comments())
        app = web.Application(middlewares=[self._record, self._authenticate, _refuse_bad_ids])
        app.add_routes(
            [
                web.get("/api/health", self._health),
                web.get("/api/agents/me", self._agent_me),
                web.get("/api/companies", self._companies),
                web.get("/api/companies/{id}", self._company),
                web.get("/api/companies/{id}/agents", self._company_agents),
                web.get("/api/issues/{id}", self._issue),
                web.get("/api/issues/{id}/comments", self._issue_comments),
                web.get("/api/issues/{id}/comments/{comment}", self._issue_comment),
                web.get("/api/heartbeat-runs/{id}", self._run),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _error(404, "API route not found")

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        if self.key is not None and request.path != "/api/health" and authorization != f"Bearer {self.key}":
            return _hidden(request.path)
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _agent_me(self, _request: web.Request) -> web.Response:
        return web.json_response(self.agent_me)

    async def _companies(self, _request: web.Request) -> web.Response:
        return web.json_response([self.company])

    async def _company(self, request: web.Request) -> web.Response:
        if request.match_info["id"] != self.company["id"]:
            return _error(404, "Company not found")
        return web.json_response(self.company)

    async def _company_agents(self, request: web.Request) -> web.Response:
        company = request.match_info["id"]
        return web.json_response([agent for agent in self.agents.values() if agent["companyId"] == company])

    async def _issue(self, request: web.Request) -> web.Response:
        return _response(self.issues.get(request.match_info["id"]), "Issue")

    async def _issue_comments(self, request: web.Request) -> web.Response:
        issue = request.match_info["id"]
        if issue not in self.issues:
            return _error(404, "Issue not found")
        rows = sorted(
            (comment for comment in self.comments.values() if comment["issueId"] == issue),
            key=lambda comment: (comment["createdAt"], comment["id"]),
            reverse=request.query.get("order") != "asc",
        )
        if after := request.query.get("after"):
            ids = [row["id"] for row in rows]
            rows = rows[ids.index(after) + 1 :] if after in ids else []
        return web.json_response(rows[: min(int(request.query.get("limit", MAX_COMMENTS)), MAX_COMMENTS)])

    async def _issue_comment(self, request: web.Request) -> web.Response:
        issue = request.match_info["id"]
        if issue not in self.issues:
            return _error(404, "Issue not found")
        comment = self.comments.get(request.match_info["comment"])
        return _response(comment if comment and comment["issueId"] == issue else None, "Comment")

    async def _run(self, request: web.Request) -> web.Response:
        return _response(self.runs.get(request.match_info["id"]), "Heartbeat run")


@web.middleware
async def _refuse_bad_ids(request: web.Request, handler: Handler) -> web.StreamResponse:
    if any(not re.match(UUID_PATTERN, value.lower()) for value in request.match_info.values()):
        return _error(500, "Internal server error")
    return await handler(request)


def _by_id(rows: list[Json]) -> dict[str, Json]:
    return {row["id"]: row for row in rows}


def _response(row: Any, kind: str) -> web.Response:
    return _error(404, f"{kind} not found") if row is None else web.json_response(row)


def _hidden(path: str) -> web.Response:
    """The real server's answer to a wrong or expired key: issues and runs seem not to exist."""
    kinds = {"issues": "Issue", "heartbeat-runs": "Heartbeat run"}
    kind = kinds.get(path.split("/")[2] if path.count("/") >= 2 else "")
    return _error(404, f"{kind} not found") if kind else _error(401, "Unauthorized")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


@contextmanager
def in_thread(standin: StandIn) -> Iterator[StandIn]:
    """Serve from a separate thread, for callers without an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(standin.__aenter__(), loop).result()
        yield standin
        asyncio.run_coroutine_threadsafe(standin.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
