"""A scripted Hindsight over HTTP, for tests of a whole worker: it does as a test says, and refuses what the real one
refuses."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

from consumer.embedded.supervise import free_port

Answer = Callable[[dict[str, Any]], Awaitable[int]]
"""Takes the body of a retain and returns the status of the reply; 0 breaks the connection."""


async def accept(_body: dict[str, Any]) -> int:
    """All is well."""
    return 200


class ScriptedHindsight:
    """Use it as an async context manager; it can be closed and opened again, on the same port.

    Attributes:
        answer: decides every retain; may be changed.
        retains: the bodies of all retains, in the order of their arrival.
        running, most_running: retains under way: now, and at most since `most_running` was last set to 0.
        violations: what a real Hindsight would not have taken; it was answered with 422.
    """

    def __init__(self, answer: Answer = accept) -> None:
        self.answer = answer
        self.retains: list[dict[str, Any]] = []
        self.running = self.most_running = 0
        self.violations: list[str] = []
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.post("/v1/default/banks/{bank}/memories", self._retain),
                web.post("/v1/default/banks/{bank}/memories/recall", _recall),
                web.get("/v1/default/banks/{bank}/operations", _operations),
                web.delete("/v1/default/banks/{bank}/documents/{document}", _missing),
                web.get("/v1/default/banks/{bank}/stats", _missing),
                web.get("/health", _healthy),
                web.get("/version", _version),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    async def close(self) -> None:
        """Hang up, and refuse connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _retain(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.retains.append(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            problem = _problem(request.match_info["bank"], body)
            if problem is not None:
                self.violations.append(problem)
                return web.json_response({"detail": []}, status=422)
            status = await self.answer(body)
        finally:
            self.running -= 1
        if status == 0 and request.transport is not None:
            request.transport.abort()
        return web.json_response({"success": status == 200, "detail": "scripted"}, status=status or 500)


def _problem(bank: str, body: dict[str, Any]) -> str | None:
    (item,) = body["items"]
    try:
        uuid.UUID(body["operation_id"])
        for text in (bank, item["content"], item["document_id"], *item["metadata"].values()):
            text.encode()
    except (ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    if not item["content"].strip():
        return "no content"
    return "bank id" if len(bank.encode()) > 192 or bank.startswith("_") else None


async def _recall(request: web.Request) -> web.Response:
    json.loads(await request.read())["query"].encode()
    return web.json_response({"results": []})


async def _operations(_request: web.Request) -> web.Response:
    return web.json_response({"operations": [], "total": 0})


async def _missing(_request: web.Request) -> web.Response:
    return web.json_response({"detail": "Not there"}, status=404)


async def _healthy(_request: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


async def _version(_request: web.Request) -> web.Response:
    return web.json_response({"api_version": "1.1.0"})


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it does not within this time.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.02)
