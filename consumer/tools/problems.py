"""Unsuccessful results as problem details (RFC 9457)."""

import json
from http import HTTPStatus

from starlette.responses import Response

from consumer.tools.results import ToolResult


def problem_response(result: ToolResult) -> Response:
    """The HTTP response for an unsuccessful result."""
    status = HTTPStatus(result.status)
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": result.text}
    headers = {}
    if result.retry_after is not None:
        headers["Retry-After"] = str(result.retry_after)
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="paperclip-memory"'
    return Response(json.dumps(body), status.value, headers, "application/problem+json")
