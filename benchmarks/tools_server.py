"""A tools server with the memories of many runs in its cache, without Kafka and Hindsight.

    python -m benchmarks.tools_server RUNS

It prints its port. For each number on its input it starts so many runs, ends three in four of them, and prints its
resident memory in megabytes and the number of runs in its cache.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
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
from schemas.timestamps import format_timestamp

SECRET = "the-secret-of-the-benchmark"  # noqa: S105
COMPANY = str(UUID(int=1, version=4))
MEMORIES = [f"{number}. The release train leaves on Tuesdays at noon, unless the freeze is on." for number in range(12)]
CACHED_RUNS = 20_000
"""The default of `tools_runs_held`."""


async def nobody(_: Request) -> Response:
    """Replaces Hindsight: every recall must come from the cache."""
    raise AssertionError


def agent(number: int) -> str:
    return str(UUID(int=number + 2**64, version=4))


def run(number: int) -> str:
    return str(UUID(int=number + 2**65, version=4))


def record(number: int) -> bytes:
    """The record that the worker writes for a run."""
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
            recalled_at=format_timestamp(time.time()),
        )
    )


def resident() -> float:
    """This process's resident memory in megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


def pass_runs(recalls: RecallCache, numbers: Iterator[int], count: int) -> None:
    """Start runs and end most of them."""
    for number, _ in zip(numbers, range(count), strict=False):
        recalls.apply(run(number).encode(), record(number))
        if number % 4:
            recalls.apply(run(number).encode(), None)


async def main(runs: int) -> None:
    tune_garbage_collection()
    recalls = RecallCache(runs=CACHED_RUNS, size=RECALLS_SIZE, max_age=RECALLS_AGE, now=time.time)
    for number in range(runs):
        recalls.apply(run(number).encode(), record(number))
    hindsight = HindsightClient(nobody, "http://nobody", key=None, user_agent="benchmark")
    service = MemoryService(MemoryPolicy(), hindsight, recalls.get, lambda _: None)
    authenticator = Authenticator(SECRET, None, 30.0)
    dispatcher = ToolDispatcher(service, authenticator, CallLimits(CACHED_RUNS), lambda *_: None, print)
    app = tools_app(dispatcher, version="0", allowed_hosts=["127.0.0.1"])
    numbers = iter(range(10**6, 10**9))
    with listening("127.0.0.1", 0) as bound:
        async with serving(app, bound, grace=1):
            print(bound.getsockname()[1], flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                pass_runs(recalls, numbers, int(line))
                print(f"{resident():.1f} {len(recalls)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
