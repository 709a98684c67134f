"""How fast the tools answer from the map, and what runs that come and go leave behind.

    python -m benchmarks.tools

One JSON line for each way to call: so many agents, each with a run of its own and never without a call. A second kind
of line says how much memory the server has while 100,000 runs pass through its map.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from benchmarks.tools_server import COMPANY, HELD, MEMORIES, SECRET, agent, run

AGENTS = 200
CALLS = 10_000
"""Of all agents together."""
WARM_UP = 5
RUNS, STEPS = 100_000, 10
ROUNDS = 3
BOUND = 50.0
"""Milliseconds: what p99 should stay under."""
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """The server's process."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._child = child
        self.port = int(self.say())

    def say(self, line: str | None = None) -> str:
        """What it answers to a line."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if line is not None:
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
        return self._child.stdout.readline()

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


@contextmanager
def server() -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.tools_server", str(AGENTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield Server(child)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(timeout=30)


def request(port: int, path: str, body: object, number: int) -> bytes:
    """A call as Paperclip's gateway makes it, for one agent."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nauthorization: Bearer {SECRET}\r\n"
        f"x-paperclip-company-id: {COMPANY}\r\nx-paperclip-agent-id: {agent(number)}\r\n"
        f"x-paperclip-run-id: {run(number)}\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Caller(asyncio.Protocol):
    """One agent: it calls again as soon as it is answered."""

    def __init__(self, sent: bytes, calls: int, times: list[float]) -> None:
        self._sent = sent
        self._times = times
        self._counted = calls
        self._left = calls + WARM_UP
        self._reply = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._call()

    def data_received(self, data: bytes) -> None:
        self._reply += data
        head, separator, body = self._reply.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        assert b" 200 " in head[:20], head
        assert MEMORIES[-1].encode() in body
        self._reply = b""
        if self._left < self._counted:
            self._times.append(perf_counter() - self._started)
        if self._left:
            self._call()
        else:
            self.done.set_result(None)
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("closed by the server"))

    def _call(self) -> None:
        self._left -= 1
        self._started = perf_counter()
        self._transport.write(self._sent)


async def load(port: int, path: str, body: object, agents: int) -> list[float]:
    """Seconds of each call."""
    times: list[float] = []
    loop = asyncio.get_running_loop()
    calls = CALLS // agents
    authenticator = [Caller(request(port, path, body, number), calls, times) for number in range(agents)]
    waiting = iter(authenticator)
    for _ in authenticator:
        await loop.create_connection(lambda: next(waiting), "127.0.0.1", port)
    await asyncio.gather(*(caller.done for caller in authenticator))
    return times


def measured(running: Server, way: str, path: str, body: object, agents: int) -> dict[str, Any]:
    started, cpu = perf_counter(), running.cpu()
    times = asyncio.run(load(running.port, path, body, agents))
    seconds, calls = perf_counter() - started, CALLS + agents * WARM_UP
    cuts = quantiles(times, n=100)
    return {
        "bench": "recalls from the map",
        "way": way,
        "agents": agents,
        "per_second": round(calls / seconds),
        "p50_ms": round(median(times) * 1000, 1),
        "p99_ms": round(cuts[98] * 1000, 1),
        "cpu_us_per_call": round((running.cpu() - cpu) / calls * 1e6),
        "load": round(os.getloadavg()[0], 2),
    }


def grown(running: Server) -> dict[str, Any]:
    """What the server holds while runs pass through its map, which is full to begin with."""
    running.say(str(4 * HELD))
    seen: list[Sequence[str]] = [running.say(str(RUNS // STEPS)).split() for _ in range(STEPS)]
    return {
        "bench": "runs that come and go",
        "runs": RUNS,
        "resident_mb": [float(megabytes) for megabytes, _ in seen],
        "held": [int(held) for _, held in seen],
    }


def main() -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "hindsight_recall", "arguments": {"query": "release train"}},
    }
    tails: dict[str, list[float]] = {"REST": [], "MCP": []}
    with server() as running:
        for agents in (1, *[AGENTS] * ROUNDS):
            for way, path, body in (("REST", "/v1/tools/recall", {"query": "release train"}), ("MCP", "/mcp", call)):
                line = measured(running, way, path, body, agents)
                print(json.dumps(line), flush=True)
                if agents == AGENTS:
                    tails[way].append(line["p99_ms"])
    with server() as running:
        line = grown(running)
        print(json.dumps(line))
    for way, found in tails.items():
        tail = f"p99 {median(found)} ms, median of {ROUNDS} (bound: {BOUND} ms)"
        print(f"{way}: {AGENTS} recalls at once from the map: {tail}")
    first, *_, last = line["resident_mb"]
    print(f"{RUNS:,} runs through a full map: {first} MB, then {last} MB")


if __name__ == "__main__":
    main()
