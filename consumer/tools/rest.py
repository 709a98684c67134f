"""The tools over REST, for agents whose adapter speaks no MCP: a shell script with curl is enough."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from consumer.tools.arguments import Arguments, RecallArguments, RetainArguments, read
from consumer.tools.credentials import Agent, Refused, in_run
from consumer.tools.dispatcher import Desk
from consumer.tools.middleware import TOO_LARGE, read_body
from consumer.tools.openapi import document
from consumer.tools.problems import problem
from consumer.tools.results import Answer, Tool, ToolOutcome

Endpoint = Callable[[Request], Awaitable[Response]]


def rest_routes(desk: Desk, version: str) -> list[Route]:
    """The twins of the tools, what was recalled for a run, and the OpenAPI document of all three."""
    memories, described = desk.memories, document(version)

    async def run_memories(request: Request) -> Response:
        async def work(agent: Agent) -> Answer:
            _no_query(request)
            return await memories.run_memories(in_run(agent, request.path_params["run_id"]))

        visit = await desk.enter(request.scope["headers"])
        return respond(await desk.call(Tool.RUN_MEMORIES, visit, work))

    async def openapi(_: Request) -> Response:
        return JSONResponse(described)

    return [
        Route("/v1/tools/recall", _twin(desk, Tool.RECALL, RecallArguments, memories.recall), methods=["POST"]),
        Route("/v1/tools/retain", _twin(desk, Tool.RETAIN, RetainArguments, memories.retain), methods=["POST"]),
        Route("/v1/runs/{run_id}/memories", run_memories, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


def respond(answer: Answer) -> Response:
    """An answer as JSON; a refusal or a failure as a problem."""
    if not answer.ok:
        return problem(answer)
    body = {"content": answer.text, "outcome": answer.outcome}
    if answer.document_id is not None:
        body["documentId"] = answer.document_id
    return JSONResponse(body)


async def http_error(_: Request, error: Exception) -> Response:
    """What Starlette itself refuses, a path or a method, in the form of all other refusals."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {
        404: "There is nothing at this path; GET /openapi.json lists what there is.",
        405: "This path does not take this method; GET /openapi.json says which it takes.",
    }
    return problem(Answer(words.get(status, "Something is wrong with this server."), ToolOutcome.DENIED, status))


def _twin(desk: Desk, tool: Tool, model: type[Arguments], work: Callable[[Agent, Any], Awaitable[Answer]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        async def read_and_work(agent: Agent) -> Answer:
            _no_query(request)
            return await work(agent, read(model, await _body(request)))

        visit = await desk.enter(request.scope["headers"])
        return respond(await desk.call(tool, visit, read_and_work))

    return endpoint


def _no_query(request: Request) -> None:
    if request.query_params:
        raise Refused("There are no query parameters here; memory is always your own.", 400)


async def _body(request: Request) -> dict[str, Any]:
    body = await read_body(request.receive)
    if body is None:
        raise Refused(TOO_LARGE, 413)
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("The body is no JSON.", 400) from None
    if not isinstance(given, dict):
        raise Refused("The body is no JSON object.", 400)
    return given
