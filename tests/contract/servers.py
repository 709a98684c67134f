"""Scripted servers on real local sockets: an HTTP server that does what it is told, and a forward proxy."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: `target` is the second word of the request line; header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int = 200, body: bytes = b"ok", **headers: str) -> Answer:
    """An answer with these headers (`retry_after` is sent as `Retry-After`)."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


def raw(data: bytes) -> Answer:
    """Exactly these bytes; the connection stays open."""

    async def answer(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def closing(data: bytes = b"") -> Answer:
    """These bytes, then the end of the connection."""

    async def answer(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


async def resetting(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    """A reset in place of a reply."""
    writer.transport.abort()


async def echo(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """The request's body."""
    await reply(body=seen.body)(seen, writer)


class Listener:
    """A TCP server that can be stopped, with all its connections, and started again on its port."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End every connection too, also one whose TLS handshake is under way, and return when all are closed."""
        assert self._server is not None
        closed = asyncio.create_task(self._server.wait_closed())
        await asyncio.sleep(0)  # Python 3.11 waits only if it began to before the close
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        async with asyncio.timeout(10):
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                await self.serve(reader, writer)
        finally:
            writer.close()
            self._writers.discard(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    @property
    def connections(self) -> int:
        return len(self._writers)


class Server(Listener):
    """An HTTP/1.1 server: gives `answer` to each request, and remembers what it saw."""

    def __init__(self, answer: Answer | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.answer = answer or reply()
        self.seen: list[Seen] = []
        self.accepted = 0
        self.peak = 0
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.peak = max(self.peak, self.connections)
        while not writer.is_closing():
            seen = await read_request(reader)
            self.seen.append(seen)
            await self._notify()
            await self.answer(seen, writer)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await super()._connection(reader, writer)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a request's arrival or a connection's end brings about."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(condition)


class Plain(Listener):
    """A server that knows no TLS, and says so in plain HTTP at the first byte."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()


class Proxy(Listener):
    """A forward proxy: absolute-form requests and CONNECT. `refusal`: what it answers instead."""

    def __init__(self, refusal: bytes = b"") -> None:
        super().__init__()
        self.refusal = refusal
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = await read_request(reader)
        self.seen.append(seen)
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
            return
        parts = urlsplit(seen.target if "://" in seen.target else f"//{seen.target}")
        there_reader, there_writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            if seen.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                path = seen.target.split(f"{parts.netloc}", 1)[1]
                head = "".join(f"{name}: {value}\r\n" for name, value in seen.headers.items())
                there_writer.write(f"{seen.method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + seen.body)
            await asyncio.gather(_pipe(reader, there_writer), _pipe(there_reader, writer))
        finally:
            there_writer.close()


async def read_request(reader: asyncio.StreamReader) -> Seen:
    """The next request of a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, _version = head.split("\r\n", 1)[0].split(" ")
    pairs = (line.split(":", 1) for line in head.split("\r\n")[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    return Seen(method, target, headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()
    sink.close()
