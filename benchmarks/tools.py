"""Measures how fast the tools answer from their cache, and their memory while runs come and go.

    python -m benchmarks.tools

Prints one JSON line for each kind of call: so many agents, each with its own run and always with a call in flight. A
second kind of line gives the server's memory while 100,000 runs pass through its cache.
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

from benchmarks.tools_server import CACHED_RUNS, COMPANY, MEMORIES, SECRET, agent, run

AGENTS = 200
CALLS = 10_000
"""Of all agents together."""
WARM_UP = 5
RUNS, STEPS = 100_000, 10
ROUNDS = 3
BOUND = 50.0
"""Upper bound of p99, milliseconds."""
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """The server's process."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._child = child
        self.port = int(self.exchange())

    def exchange(self, line: str | None = None) -> str:
        """Send a line, if any, and return the server's next line."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if line is not None:
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
        return self._child.stdout.readline()

    def cpu(self) -> float:
        """CPU seconds used so far."""
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
    """One agent that calls again as soon as it gets its answer."""

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
    callers = [Caller(request(port, path, body, number), calls, times) for number in range(agents)]
    waiting = iter(callers)
    for _ in callers:
        await loop.create_connection(lambda: next(waiting), "127.0.0.1", port)
    await asyncio.gather(*(caller.done for caller in callers))
    return times


def measure(running: Server, way: str, path: str, body: object, agents: int) -> dict[str, Any]:
    started, cpu = perf_counter(), running.cpu()
    times = asyncio.run(load(running.port, path, body, agents))
    seconds, calls = perf_counter() - started, CALLS + agents * WARM_UP
    cuts = quantiles(times, n=100)
    return {
        "bench": "recalls from the cache",
        "way": way,
        "agents": agents,
        "per_second": round(calls / seconds),
        "p50_ms": round(median(times) * 1000, 1),
        "p99_ms": round(cuts[98] * 1000, 1),
        "cpu_us_per_call": round((running.cpu() - cpu) / calls * 1e6),
        "load": round(os.getloadavg()[0], 2),
    }


def measure_memory(running: Server) -> dict[str, Any]:
    """The server's memory while runs pass through its full cache."""
    running.exchange(str(4 * CACHED_RUNS))
    samples: list[Sequence[str]] = [running.exchange(str(RUNS // STEPS)).split() for _ in range(STEPS)]
    return {
        "bench": "runs that come and go",
        "runs": RUNS,
        "resident_mb": [float(megabytes) for megabytes, _ in samples],
        "cached": [int(cached) for _, cached in samples],
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
                result = measure(running, way, path, body, agents)
                print(json.dumps(result), flush=True)
                if agents == AGENTS:
                    tails[way].append(result["p99_ms"])
    with server() as running:
        result = measure_memory(running)
        print(json.dumps(result))
    for way, values in tails.items():
        tail = f"p99 {median(values)} ms, median of {ROUNDS} (bound: {BOUND} ms)"
        print(f"{way}: {AGENTS} concurrent recalls from the cache: {tail}")
    first, *_, last = result["resident_mb"]
    print(f"{RUNS:,} runs through a full cache: {first} MB, then {last} MB")


if __name__ == "__main__":
    main()
