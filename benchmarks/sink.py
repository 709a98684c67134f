"""A stand-in for Hindsight and Paperclip that answers after a fixed latency, and remembers when each retain came.

It must never be what limits a run: one process, no HTTP library, no work between a request and the timer for its reply.

    python -m benchmarks.sink PORT RETAIN_MS RECALL_MS PAPERCLIP_MS
"""

import asyncio
import json
import sys
import time
from array import array
from itertools import count

RETAIN = b"/memories HTTP/1.1"
RECALL = b"/memories/recall HTTP/1.1"
ISSUE = {"id": "7d1b3c5e-0c59-4c8c-9a5e-2d1f6c0b9a10", "title": "Rotate the keys", "description": "Every 90 days."}
RUN_ID = "0" * 36
RUN = {"id": RUN_ID, "contextSnapshot": {"paperclipWake": {"issue": ISSUE, "comments": []}}}


def reply(body: object, content_type: str = "application/json") -> bytes:
    """A whole HTTP/1.1 reply with status 200."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


RETAINED = reply({"success": True, "bank_id": "b", "items_count": 1, "async": True, "operation_id": "o"})
RECALLED = reply({"results": [{"id": str(n), "text": f"The keys were rotated in month {n}."} for n in range(8)]})
WOKEN = reply(RUN)
HEALTHY = reply({"status": "healthy", "database": "connected"})
VERSION = reply({"api_version": "1.1.0"})
STATS = reply({"pending_operations": 0, "failed_operations": 0, "pending_consolidation": 0})


class Record:
    """When each retain arrived (seconds of the monotonic clock, the same in all processes), and on which connection."""

    def __init__(self) -> None:
        self.times = array("d")
        self.connections = array("I")

    def take(self) -> bytes:
        """Everything since the last `take`: the times, then the connections."""
        taken = self.times.tobytes() + self.connections.tobytes()
        self.__init__()  # type: ignore[misc]
        return taken


class Connection(asyncio.Protocol):
    """One client's connection: requests one after another, each answered after its latency."""

    numbers = count()

    def __init__(self, record: Record, retain: float, recall: float, paperclip: float) -> None:
        self._record = record
        self._retain = retain
        self._recall = recall
        self._paperclip = paperclip
        self._number = next(self.numbers)
        self._begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write
        self._later = asyncio.get_running_loop().call_later

    def data_received(self, data: bytes) -> None:
        data = self._begun + data
        end = data.find(b"\r\n\r\n")
        if end >= 0 and len(data) >= end + 4 + _length(data[:end]):
            self._begun = b""
            self._answer(data[: data.find(b"\r\n")])
        else:
            self._begun = data

    def _answer(self, line: bytes) -> None:
        if line.endswith(RETAIN):
            self._record.times.append(time.monotonic())
            self._record.connections.append(self._number)
            self._later(self._retain, self._write, RETAINED)
        elif line.endswith(RECALL):
            self._later(self._recall, self._write, RECALLED)
        elif b"/heartbeat-runs/" in line:
            run = line.split()[1].rpartition(b"/")[2]
            self._later(self._paperclip, self._write, WOKEN.replace(RUN_ID.encode(), run))
        else:
            self._write(self._aside(line.split()[1]))

    def _aside(self, path: bytes) -> bytes:
        """What is asked at a worker's start, and by the benchmark itself."""
        match path:
            case b"/taken":
                return reply(self._record.take(), "application/octet-stream")
            case b"/count":
                return reply({"count": len(self._record.times)})
            case b"/version":
                return VERSION
            case _:
                return STATS if path.endswith(b"/stats") else HEALTHY


def _length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def serve(port: int, retain: float, recall: float, paperclip: float) -> None:
    """Serve for ever; latencies in seconds."""
    record = Record()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(record, retain, recall, paperclip), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), *(float(text) / 1000 for text in sys.argv[2:5])))
