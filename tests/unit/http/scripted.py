"""A `Transport` that plays a script: it compares what is asked and answers what is next."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from consumer.http.transport import Request, Response, TransportError


def answer(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON reply; `body` as bytes goes out as it is."""
    return Response(status, dict(headers or {}), body if isinstance(body, bytes) else json.dumps(body).encode())


@dataclass
class Scripted:
    """Answers in turn; `asked` keeps every request."""

    answers: list[Response | TransportError]
    asked: list[Request] = field(default_factory=list)

    async def __call__(self, request: Request) -> Response:
        self.asked.append(request)
        assert self.answers, f"unexpected: {request.method} {request.url}"
        next_ = self.answers.pop(0)
        if isinstance(next_, TransportError):
            raise next_
        return next_

    @property
    def lines(self) -> list[str]:
        """`METHOD path` of each request, without the base URL."""
        return [f"{request.method} /{request.url.split('/', 3)[3]}" for request in self.asked]

    @property
    def bodies(self) -> list[Any]:
        """The JSON of each request; None if it had no body."""
        return [json.loads(request.body) if request.body else None for request in self.asked]
