"""Refusals and failures as problem details (RFC 9457)."""

import json
from http import HTTPStatus

from starlette.responses import Response

from consumer.tools.results import Answer


def problem(answer: Answer) -> Response:
    """The response that an answer which is no success amounts to."""
    status = HTTPStatus(answer.status)
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": answer.text}
    headers = {}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(answer.retry_after)
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="paperclip-memory"'
    return Response(json.dumps(body), status.value, headers, "application/problem+json")
