"""The OpenAPI 3.1 document of the REST twins."""

from typing import Any

from consumer.tools.arguments import RecallArguments, RetainArguments
from consumer.tools.results import Tool, ToolOutcome

_REFUSALS = {
    "400": "The call is wrong; the detail says how.",
    "401": "It is not proven who calls, or the run is not the caller's.",
    "403": "Memory is not enabled for this agent.",
    "409": "Memory is kept for each user, and the user is not known.",
    "500": "Something is wrong with this server.",
    "502": "Hindsight or Paperclip refuses the request.",
    "503": "Hindsight or Paperclip is not available.",
    "504": "There was no answer in time.",
}
_RUN_HEADER = {
    "name": "X-Paperclip-Run-Id",
    "in": "header",
    "required": False,
    "description": "The run that calls (PAPERCLIP_RUN_ID); it must be the caller's.",
    "schema": {"type": "string", "format": "uuid"},
}


def document(version: str) -> dict[str, Any]:
    """The document, as it is served at `/openapi.json`."""
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
                    "summary": "What was recalled for a run at its start",
                    "parameters": [
                        {
                            "name": "runId",
                            "in": "path",
                            "required": True,
                            "schema": {"type": "string", "format": "uuid"},
                        }
                    ],
                    "responses": _responses("404", "The path names no run."),
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
                "Answer": {
                    "type": "object",
                    "required": ["content", "outcome"],
                    "additionalProperties": False,
                    "properties": {
                        "content": {"type": "string", "description": "Text for the agent."},
                        "outcome": {"enum": [ToolOutcome.CACHED, ToolOutcome.LIVE, ToolOutcome.EMPTY]},
                        "documentId": {"type": "string", "format": "uuid", "description": "Of what was saved."},
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
                        "detail": {"type": "string", "description": "What is wrong, in words for the agent."},
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
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    refusal = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    refusals = {
        each: {"description": text, "content": refusal} for each, text in (_REFUSALS | {status: meaning}).items()
    }
    return {"200": {"description": "The answer.", "content": answer}, **refusals}
