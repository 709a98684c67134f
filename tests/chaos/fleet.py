"""The workers: processes as users start them, killed, ended, added and removed."""

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.ours import command, environment

GRACE = 30.0
"""Seconds from SIGTERM to the end; the workers' `shutdown_timeout` is below it."""


@dataclass
class Fleet:
    """Some workers of one group.

    Attributes:
        settings: names without the prefix.
        kills, terminations: how many there were.
        unclean: endings after a SIGTERM that were not clean, and workers that ended by themselves.
    """

    settings: Mapping[str, str]
    logs: Path
    chance: random.Random
    kills: int = 0
    terminations: int = 0
    unclean: list[str] = field(default_factory=list)
    _workers: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    _started: int = 0

    def __len__(self) -> int:
        return len(self._workers)

    async def add(self) -> None:
        """Start one."""
        self._started += 1
        with (self.logs / f"worker-{self._started}.log").open("wb") as log:
            worker = await asyncio.create_subprocess_exec(
                command(), "worker", "--lane", "retain", env=environment(self.settings), stdout=log, stderr=log
            )
        self._workers[self._started] = worker

    async def kill(self) -> None:
        """SIGKILL one, and start another in its place."""
        number, worker = self._pick()
        worker.kill()
        await worker.wait()
        self._check(number, worker.returncode, -signal.SIGKILL)
        self.kills += 1
        await self.add()

    async def remove(self) -> None:
        """SIGTERM one, and wait until it has ended."""
        number, worker = self._pick()
        await self._terminate(number, worker)

    async def replace(self) -> None:
        """What a rolling update does: another is started, then one gets SIGTERM."""
        number, worker = self._pick()
        await self.add()
        await self._terminate(number, worker)

    async def end(self) -> None:
        """SIGTERM all."""
        await asyncio.gather(*(self._terminate(number, worker) for number, worker in list(self._workers.items())))

    def abandon(self) -> None:
        """SIGKILL whatever still runs."""
        for worker in self._workers.values():
            if worker.returncode is None:
                worker.kill()

    def _pick(self) -> tuple[int, asyncio.subprocess.Process]:
        number = self.chance.choice(list(self._workers))
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
        # A worker that is still starting has no handler yet and dies of the signal, which is as clean.
        self._check(number, worker.returncode, 0, -signal.SIGTERM)

    def _check(self, number: int, code: int | None, *fine: int) -> None:
        del self._workers[number]
        if code not in fine:
            self.unclean.append(f"worker-{number} ended with {code}")
