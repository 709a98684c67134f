"""A tools server whose map holds what was recalled for many runs. No Kafka and no Hindsight: a recall asks for none.

    python -m benchmarks.tools_server RUNS

It prints its port and then, for each number on its input, lets so many runs come, of which one in four stays, and
prints the megabytes that it has resident and how many runs its map holds.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from consumer.commands.runtime import tune_garbage_collection
from consumer.commands.tools import RECALLS_AGE, RECALLS_SIZE
from consumer.hindsight.client import HindsightClient
from consumer.http.transport import Request, Response
from consumer.memory.policy import MemoryPolicy
from consumer.recalls import RecallCache
from consumer.tools.authenticator import Authenticator
from consumer.tools.call_limits import CallLimits
from consumer.tools.dispatcher import ToolDispatcher
from consumer.tools.server import listening, serving, tools_app
from consumer.tools.service import MemoryService
from schemas.codec import encode
from schemas.recalls import RecallRecord, RecallStatus

SECRET = "the-secret-of-the-benchmark"  # noqa: S105
COMPANY = str(UUID(int=1, version=4))
MEMORIES = [f"{number}. The release train leaves on Tuesdays at noon, unless the freeze is on." for number in range(12)]
HELD = 20_000
"""The default of `tools_runs_held`."""


async def nobody(_: Request) -> Response:
    """Hindsight's place: the map must answer."""
    raise AssertionError


def agent(number: int) -> str:
    return str(UUID(int=number + 2**64, version=4))


def run(number: int) -> str:
    return str(UUID(int=number + 2**65, version=4))


def record(number: int) -> bytes:
    """What the worker writes for a run."""
    return encode(
        RecallRecord(
            run_id=run(number),
            company_id=COMPANY,
            agent_id=agent(number),
            issue_id=str(UUID(int=number, version=4)),
            bank_id=f"paperclip::{COMPANY}::{agent(number)}",
            user_id=None,
            query="When does the release train leave?",
            status=RecallStatus.RECALLED,
            memories=MEMORIES,
            recalled_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
    )


def resident() -> float:
    """Megabytes that this process has in memory."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


def see(recalls: RecallCache, numbers: Iterator[int], count: int) -> None:
    """Let runs come, and most of them go."""
    for number, _ in zip(numbers, range(count), strict=False):
        recalls.apply(run(number).encode(), record(number))
        if number % 4:
            recalls.apply(run(number).encode(), None)


async def main(runs: int) -> None:
    tune_garbage_collection()
    recalls = RecallCache(runs=HELD, size=RECALLS_SIZE, max_age=RECALLS_AGE, now=time.time)
    for number in range(runs):
        recalls.apply(run(number).encode(), record(number))
    hindsight = HindsightClient(nobody, "http://nobody", key=None, user_agent="benchmark")
    service = MemoryService(MemoryPolicy(), hindsight, recalls.get, lambda _: None)
    authenticator = Authenticator(SECRET, None, 30.0)
    dispatcher = ToolDispatcher(service, authenticator, CallLimits(HELD), lambda *_: None, print)
    app = tools_app(dispatcher, version="0", allowed_hosts=["127.0.0.1"])
    numbers = iter(range(10**6, 10**9))
    with listening("127.0.0.1", 0) as bound:
        async with serving(app, bound, grace=1):
            print(bound.getsockname()[1], flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                see(recalls, numbers, int(line))
                print(f"{resident():.1f} {len(recalls)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
