"""The workers: processes that are added, removed, killed and terminated."""

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.services import command, environment

GRACE = 30.0
"""Seconds from SIGTERM to the end; the workers' `shutdown_timeout` is below it."""


@dataclass
class Fleet:
    """The workers of one group.

    Attributes:
        settings: names of settings without the prefix.
        kills, terminations: how many SIGKILLs and SIGTERMs were sent.
        unclean: unexpected exits: workers that failed on SIGTERM or ended on their own.
    """

    settings: Mapping[str, str]
    logs: Path
    rng: random.Random
    kills: int = 0
    terminations: int = 0
    unclean: list[str] = field(default_factory=list)
    _workers: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    _started: int = 0

    def __len__(self) -> int:
        return len(self._workers)

    async def add(self) -> None:
        """Start a worker."""
        self._started += 1
        with (self.logs / f"worker-{self._started}.log").open("wb") as log:
            worker = await asyncio.create_subprocess_exec(
                command(), "worker", "--lane", "retain", env=environment(self.settings), stdout=log, stderr=log
            )
        self._workers[self._started] = worker

    async def kill(self) -> None:
        """SIGKILL a worker and start a replacement."""
        number, worker = self._pick()
        worker.kill()
        await worker.wait()
        self._check(number, worker.returncode, -signal.SIGKILL)
        self.kills += 1
        await self.add()

    async def remove(self) -> None:
        """SIGTERM a worker and wait until it ends."""
        number, worker = self._pick()
        await self._terminate(number, worker)

    async def replace(self) -> None:
        """A rolling update: start a worker, then SIGTERM another."""
        number, worker = self._pick()
        await self.add()
        await self._terminate(number, worker)

    async def terminate_all(self) -> None:
        """SIGTERM all workers and wait until they end."""
        await asyncio.gather(*(self._terminate(number, worker) for number, worker in list(self._workers.items())))

    def kill_all(self) -> None:
        """SIGKILL all workers that still run."""
        for worker in self._workers.values():
            if worker.returncode is None:
                worker.kill()

    def _pick(self) -> tuple[int, asyncio.subprocess.Process]:
        number = self.rng.choice(list(self._workers))
        return number, self._workers[number]

    async def _terminate(self, number: int, worker: asyncio.subprocess.Process) -> None:
        self.terminations += 1
        if worker.returncode is None:
            worker.terminate()
        try:
            async with asyncio.timeout(GRACE):
                await worker.wait()
        except TimeoutError:
            worker.kill()
            await worker.wait()
        # A worker that is still starting has no signal handler yet; that exit is clean, too.
        self._check(number, worker.returncode, 0, -signal.SIGTERM)

    def _check(self, number: int, code: int | None, *expected: int) -> None:
        del self._workers[number]
        if code not in expected:
            self.unclean.append(f"worker-{number} ended with {code}")
