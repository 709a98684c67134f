"""What stands before the MCP server: who may come in at all, and bodies that it could not read.

Paperclip's gateway passes on what an agent gives as arguments, unchecked: half an emoji, a list, a megabyte. The SDK
answers some of these with an HTTP status or a protocol error, and for either the gateway marks the connection as broken
and takes the tools away from every agent. So what comes from the gateway is made readable here, or answered in words.
"""

import json
import re
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer.memory.sanitize import mend
from consumer.tools.credentials import Refused
from consumer.tools.dispatcher import Desk, Visit
from consumer.tools.problems import problem
from consumer.tools.results import Answer, Tool, denied

MAX_BODY = 1024 * 1024
"""Bytes of a request."""
VISIT = "paperclip_memory.visit"
"""Where in the scope a `Visit` stands."""
_ESCAPE = re.compile(rb"\\u(?:d[89a-f]|0000)", re.IGNORECASE)
TOO_LARGE = f"The body is larger than {MAX_BODY} bytes."
UNREADABLE = "The arguments are no JSON that can be read."


class Admission:
    """Lets nobody in whose credential is refused, and nothing that cannot be read."""

    def __init__(self, app: ASGIApp, desk: Desk, path: str) -> None:
        self._app = app
        self._desk = desk
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        visit = await self._desk.enter(scope["headers"])
        if not visit.admitted and isinstance(visit.who, Answer):
            await self._refuse(visit, visit.who)(scope, receive, send)
            return
        scope[VISIT] = visit
        body = await read_body(receive)
        if body is None:
            await self._refuse(visit, denied(Refused(TOO_LARGE, 413)))(scope, receive, send)
            return
        readable = legible(body)
        if readable is None and visit.from_gateway:
            await self._refuse(visit, denied(Refused(UNREADABLE, 400)))(scope, receive, send)
            return
        await self._app(scope, _again(readable or body, receive), send)

    def _refuse(self, visit: Visit, answer: Answer) -> Response:
        self._desk.count(Tool.OTHER, visit, answer)
        if not visit.from_gateway:
            return problem(answer)
        result = {"content": [{"type": "text", "text": answer.text}], "isError": True}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "result": result})


async def read_body(receive: Receive) -> bytes | None:
    """The body of a request, as far as it came; None if it is too large."""
    chunks, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            return None
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def legible(body: bytes) -> bytes | None:
    """A body without what the SDK cannot read; None if it is no JSON.

    Arguments that are no object become none, and lists and objects in them null: no tool takes any, and the SDK reads
    no deep ones.
    """
    try:
        message = json.loads(body)
        broken = _ESCAPE.search(body) is not None
        params = message.get("params") if isinstance(message, dict) else None
        if isinstance(params, dict) and (given := params.get("arguments")) is not None:
            flat = _flat(given)
            broken = broken or flat != given
            params["arguments"] = flat
        return json.dumps(_mended(message)).encode() if broken else body
    except (ValueError, RecursionError):
        return None


def _flat(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        return {}
    return {name: None if isinstance(value, list | dict) else value for name, value in given.items()}


def _mended(value: Any) -> Any:
    match value:
        case str():
            return mend(value)
        case list():
            return [_mended(each) for each in value]
        case dict():
            return {mend(name): _mended(each) for name, each in value.items()}
        case _:
            return value


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, and then what follows."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
