"""The OpenAPI 3.1 document of the REST API."""

from typing import Any

from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.results import Tool, ToolOutcome

_PROBLEMS = {
    "400": "The request is invalid; the detail says how.",
    "401": "Not authenticated, or the run is not the caller's.",
    "403": "Memory is not enabled for this agent.",
    "408": "The body did not arrive in time.",
    "409": "Memory is kept per user, and the user is unknown.",
    "429": "The agent or its company makes too many calls.",
    "500": "Internal server error.",
    "502": "Hindsight or Paperclip rejected the request.",
    "503": "Hindsight or Paperclip is not available.",
    "504": "The request timed out.",
}
_RUN_HEADER = {
    "name": "X-Paperclip-Run-Id",
    "in": "header",
    "required": False,
    "description": "The calling run (PAPERCLIP_RUN_ID); it must be the caller's own.",
    "schema": {"type": "string", "format": "uuid"},
}


def openapi_document(version: str) -> dict[str, Any]:
    """The document that is served at `/openapi.json`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "paperclip-memory tools",
            "version": version,
            "description": "Long-term memory of Paperclip agents. Memory is always the caller's own.",
        },
        "security": [{"paperclip": []}],
        "paths": {
            "/v1/tools/recall": {"post": _post(Tool.RECALL, "Recall from memory", "RecallArguments")},
            "/v1/tools/retain": {"post": _post(Tool.RETAIN, "Save to memory", "RetainArguments")},
            "/v1/runs/{runId}/memories": {
                "get": {
                    "operationId": Tool.RUN_MEMORIES,
                    "summary": "The memories recalled at the start of a run",
                    "parameters": [
                        {
                            "name": "runId",
                            "in": "path",
                            "required": True,
                            "schema": {"type": "string", "format": "uuid"},
                        }
                    ],
                    "responses": _responses("404", "The run id in the path is not a UUID."),
                }
            },
        },
        "components": {
            "securitySchemes": {
                "paperclip": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The caller's own Paperclip key: an agent key, or PAPERCLIP_API_KEY of a run.",
                }
            },
            "schemas": {
                "RecallArguments": RecallArguments.model_json_schema(),
                "RetainArguments": RetainArguments.model_json_schema(),
                "Result": {
                    "type": "object",
                    "required": ["content", "outcome"],
                    "additionalProperties": False,
                    "properties": {
                        "content": {"type": "string", "description": "Text for the agent."},
                        "outcome": {"enum": [ToolOutcome.CACHED, ToolOutcome.LIVE, ToolOutcome.EMPTY]},
                        "documentId": {"type": "string", "format": "uuid", "description": "Id of the saved text."},
                    },
                },
                "Problem": {
                    "type": "object",
                    "required": ["type", "title", "status", "detail"],
                    "additionalProperties": False,
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string", "description": "An error message for the agent."},
                    },
                },
            },
        },
    }


def _post(tool: Tool, summary: str, arguments: str) -> dict[str, Any]:
    return {
        "operationId": tool,
        "summary": summary,
        "parameters": [_RUN_HEADER],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{arguments}"}}},
        },
        "responses": _responses("413", "The body is too large."),
    }


def _responses(status: str, meaning: str) -> dict[str, Any]:
    result = {"application/json": {"schema": {"$ref": "#/components/schemas/Result"}}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    meanings = _PROBLEMS | {status: meaning}
    problems = {code: {"description": text, "content": problem} for code, text in meanings.items()}
    return {"200": {"description": "The result.", "content": result}, **problems}
