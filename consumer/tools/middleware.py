"""In front of the MCP server: authentication, and request bodies that the SDK could not read.

Paperclip's gateway forwards an agent's arguments unchecked: half an emoji, a list, a megabyte. The SDK answers some of
these with an HTTP error or a protocol error, and on either the gateway marks the connection as broken and withdraws the
tools from every agent. So bodies from the gateway are made readable here, or answered with an error message.
"""

import asyncio
import json
import re
from contextlib import nullcontext
from itertools import islice
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer.memory.sanitize import strip_unencodable
from consumer.tools import dispatcher as dispatcher_module
from consumer.tools.arguments import MAX_ARGUMENTS
from consumer.tools.credentials import Agent, ToolError
from consumer.tools.dispatcher import CallContext, ToolDispatcher
from consumer.tools.problems import problem_response
from consumer.tools.results import Tool, ToolResult, denied

MAX_BODY = 1024 * 1024
"""Maximum bytes of a request body."""
MAX_UNPROVEN_BODY = 64 * 1024
"""The same while Paperclip cannot say whose the key is."""
CONTEXT_KEY = "paperclip_memory.call_context"
"""Key of the `CallContext` in the ASGI scope."""
_ESCAPE = re.compile(rb"\\u(?:d[89a-f]|0000)", re.IGNORECASE)
TOO_SLOW = "The body did not arrive in time."
UNREADABLE = "The body is not readable JSON."


class McpAuthMiddleware:
    """Passes on authenticated POST requests with a readable body; answers all others itself."""

    def __init__(self, app: ASGIApp, dispatcher: ToolDispatcher, path: str) -> None:
        self._app = app
        self._dispatcher = dispatcher
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") != self._path:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":  # the SDK would open a stream that no event ever ends
            await self._refuse_method()(scope, receive, send)
            return
        scope["path"] = self._path
        context = await self._dispatcher.authenticate(scope["headers"])
        if not context.admitted and isinstance(context.caller, ToolResult):
            await self._refuse(context, context.caller)(scope, receive, send)
            return
        scope[CONTEXT_KEY] = context
        try:
            body = await self._read_body(context, receive)
            readable = sanitize_body(body)
            if readable is None and context.from_gateway:
                raise ToolError(UNREADABLE, 400)  # noqa: TRY301
        except ToolError as error:
            await self._refuse(context, denied(error))(scope, receive, send)
            return
        await self._app(scope, _replay(readable or body, receive), send)

    async def _read_body(self, context: CallContext, receive: Receive) -> bytes:
        """Read the body within the time budget, as part of the agent's share of calls in flight.

        Raises:
            ToolError: it is too large, too slow, or one of too many.
        """
        agent = context.caller if isinstance(context.caller, Agent) else None
        limit = MAX_BODY if agent is not None or context.from_gateway else MAX_UNPROVEN_BODY
        try:
            with self._dispatcher.limits.slot(agent) if agent is not None else nullcontext():
                async with asyncio.timeout_at(context.started + dispatcher_module.BUDGET):
                    return await read_body(receive, limit)
        except TimeoutError:
            raise ToolError(TOO_SLOW, 408) from None

    def _refuse(self, context: CallContext, result: ToolResult) -> Response:
        self._dispatcher.count(Tool.OTHER, context, result)
        if not context.from_gateway:
            return problem_response(result)
        tool_result = {"content": [{"type": "text", "text": result.text}], "isError": True}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "result": tool_result})

    def _refuse_method(self) -> Response:
        result = denied(ToolError("Only POST is supported here.", 405))
        self._dispatcher.count(Tool.OTHER, CallContext.refused(result), result)
        response = problem_response(result)
        response.headers["Allow"] = "POST"
        return response


async def read_body(receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read the body of a request.

    Raises:
        ToolError: it is larger than `limit` bytes.
    """
    chunks, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise ToolError(f"The body is larger than {limit} bytes.", 413)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def sanitize_body(body: bytes) -> bytes | None:
    """Remove from a JSON-RPC body what the SDK cannot read; None if it is not JSON.

    Arguments that are not an object become an empty one, and nested lists and objects become null: no tool takes any,
    and the SDK fails on deep ones. Of too many arguments only so many are kept that they are refused.
    """
    try:
        message = json.loads(body)
        changed = _ESCAPE.search(body) is not None
        params = message.get("params") if isinstance(message, dict) else None
        if isinstance(params, dict) and (arguments := params.get("arguments")) is not None:
            flat = _flatten(arguments)
            changed = changed or flat != arguments
            params["arguments"] = flat
        return json.dumps(_strip_unencodable(message)).encode() if changed else body
    except (ValueError, RecursionError):
        return None


def _flatten(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        return {}
    kept = islice(arguments.items(), MAX_ARGUMENTS + 1)
    return {name: None if isinstance(value, list | dict) else value for name, value in kept}


def _strip_unencodable(value: Any) -> Any:
    match value:
        case str():
            return strip_unencodable(value)
        case list():
            return [_strip_unencodable(item) for item in value]
        case dict():
            return {strip_unencodable(name): _strip_unencodable(item) for name, item in value.items()}
        case _:
            return value


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns a body that was already read."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
