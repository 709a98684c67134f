"""Sends requests to the sink as fast as it answers, over bare sockets, to show that the sink is not the limit.

python -m benchmarks.raw_load PORT IN_FLIGHT
"""

import asyncio
import sys

from benchmarks.events import BANK, retain_body

BODY = retain_body(0)
REQUEST = (
    f"POST /v1/default/banks/{BANK}/memories HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
).encode() + BODY


class Client(asyncio.Protocol):
    """One connection that is never idle. The sink's reply comes in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write
        self._write(REQUEST)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - whatever it is
        self._write(REQUEST)


async def main(port: int, in_flight: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(in_flight):
        await loop.create_connection(Client, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
