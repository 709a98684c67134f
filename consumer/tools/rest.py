"""The tools over REST, for agents whose adapter has no MCP: a shell script with curl is enough."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from consumer.tools.arguments import Arguments, RecallArguments, RetainArguments, parse_arguments
from consumer.tools.credentials import Agent, ToolError, with_run
from consumer.tools.dispatcher import ToolDispatcher
from consumer.tools.middleware import read_body
from consumer.tools.openapi import openapi_document
from consumer.tools.problems import problem_response
from consumer.tools.results import Tool, ToolOutcome, ToolResult

Endpoint = Callable[[Request], Awaitable[Response]]


def rest_routes(dispatcher: ToolDispatcher, version: str) -> list[Route]:
    """Both tools, the memories of a run, and the OpenAPI document."""
    service, document = dispatcher.service, openapi_document(version)

    async def run_memories(request: Request) -> Response:
        async def function(agent: Agent) -> ToolResult:
            _refuse_query_parameters(request)
            return await service.run_memories(with_run(agent, request.path_params["run_id"]))

        context = await dispatcher.authenticate(request.scope["headers"])
        return to_response(await dispatcher.call(Tool.RUN_MEMORIES, context, function))

    async def openapi(_: Request) -> Response:
        return JSONResponse(document)

    recall = _tool_endpoint(dispatcher, Tool.RECALL, RecallArguments, service.recall)
    retain = _tool_endpoint(dispatcher, Tool.RETAIN, RetainArguments, service.retain)
    return [
        Route("/v1/tools/recall", recall, methods=["POST"]),
        Route("/v1/tools/retain", retain, methods=["POST"]),
        Route("/v1/runs/{run_id}/memories", run_memories, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


def to_response(result: ToolResult) -> Response:
    """A result as JSON; an unsuccessful one as problem details."""
    if not result.ok:
        return problem_response(result)
    body = {"content": result.text, "outcome": result.outcome}
    if result.document_id is not None:
        body["documentId"] = result.document_id
    return JSONResponse(body)


async def http_error(_: Request, error: Exception) -> Response:
    """Starlette's own errors (unknown path, wrong method) as problem details."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    messages = {
        404: "There is no such path. GET /openapi.json lists the paths.",
        405: "This path does not support this method. GET /openapi.json lists the methods.",
    }
    return problem_response(ToolResult(messages.get(status, "Internal server error."), ToolOutcome.DENIED, status))


def _tool_endpoint(
    dispatcher: ToolDispatcher,
    tool: Tool,
    model: type[Arguments],
    function: Callable[[Agent, Any], Awaitable[ToolResult]],
) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        async def with_arguments(agent: Agent) -> ToolResult:
            _refuse_query_parameters(request)
            return await function(agent, parse_arguments(model, await _json_body(request)))

        context = await dispatcher.authenticate(request.scope["headers"])
        return to_response(await dispatcher.call(tool, context, with_arguments))

    return endpoint


def _refuse_query_parameters(request: Request) -> None:
    if request.query_params:
        raise ToolError("Query parameters are not supported. The tools work on your own memory only.", 400)


async def _json_body(request: Request) -> dict[str, Any]:
    body = await read_body(request.receive)
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise ToolError("The body is not JSON.", 400) from None
    if not isinstance(parsed, dict):
        raise ToolError("The body is not a JSON object.", 400)
    return parsed
