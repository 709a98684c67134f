"""Our HTTP transport without Kafka and handlers, with so many requests in flight.

python -m benchmarks.transport_alone URL BACKEND IN_FLIGHT
"""

import asyncio
import sys

from benchmarks.events import BANK, retain_body
from consumer.commands import event_loop
from consumer.http.backends import open_transport
from consumer.http.transport import Request, quote_segment
from consumer.settings.types import HttpBackend

HEADERS = {"User-Agent": "paperclip-memory", "Accept": "application/json", "Content-Type": "application/json"}


async def main(url: str, backend: str, in_flight: int) -> None:
    requests = [
        Request("POST", f"{url}/v1/default/banks/{quote_segment(BANK)}/memories", HEADERS, retain_body(number))
        for number in range(in_flight)
    ]
    async with open_transport(backend, in_flight) as send:

        async def again_and_again(request: Request) -> None:
            while True:
                reply = await send(request)
                assert reply.status == 200, reply

        await asyncio.gather(*(again_and_again(request) for request in requests))


if __name__ == "__main__":
    event_loop.run(HttpBackend(sys.argv[2]), main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
