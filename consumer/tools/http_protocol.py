"""HTTP/1.1 on the tools' port, with limits that uvicorn lacks: size and time of headers, connections, pipelined
requests, and time for a client to read its response."""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

MAX_HEAD = 64 * 1024
"""Maximum bytes of request line and headers."""
MAX_HEADERS = 100
MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes of one request after which the connection is closed, whether or not the request was answered already."""
HEAD_TIMEOUT = 10.0
"""Seconds from the start of a connection or request to the end of its headers."""
WRITE_TIMEOUT = 30.0
"""Seconds for which a client may stop reading its response."""
KEEP_ALIVE = 75
"""Seconds of an idle connection: longer than the 60 s of common proxies, so that they never reuse a closed one."""
MAX_CONNECTIONS = 1000
MAX_PIPELINED = 16
"""Requests of one connection that wait for the response to an earlier one."""
_LINGER = 1.0  # seconds for a refused client to read the response before the connection is reset


class LimitedHttpProtocol(HttpToolsProtocol):
    """Closes connections that exceed a limit. At `MAX_CONNECTIONS`, a new connection replaces an idle one."""

    _refused = False
    _in_head = True
    _head_size = 0
    _message_size = 0
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        full = len(self.connections) >= MAX_CONNECTIONS
        super().connection_made(transport)
        if full and not self._close_idle():
            transport.abort()
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_size += len(data)
        self._message_size += len(data)
        super().data_received(data)
        if self._in_head and self._head_size > MAX_HEAD:
            self._refuse_head()
        elif self._message_size > MAX_MESSAGE:
            self.transport.abort()
        elif self.is_idle and self._head_timer is None:
            self._start_head_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_size, self._message_size = True, 0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_size += len(name) + len(value)
        if self._head_size > 2 * MAX_HEAD or len(self.headers) > MAX_HEADERS:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refused = True
            self.transport.abort()
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being handled."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def _close_idle(self) -> bool:
        """Close an idle connection, one that never had a request first; False if there is none."""
        idle = [other for other in self.connections if isinstance(other, LimitedHttpProtocol) and other.is_idle]
        others = [other for other in idle if other is not self]
        if not others:
            return False
        victim = min(others, key=lambda other: other.cycle is not None)
        victim.transport.abort()
        self.connections.discard(victim)
        return True

    def _refuse_head(self) -> None:
        if self._refused:
            return
        self._refused = True
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.abort)
