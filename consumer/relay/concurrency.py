"""Works through many items without asking an upstream for all of them at once, or too fast."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

CONCURRENT_ITEMS = 8
CATCH_UP_RATE = 12.0
"""Requests a second with which the past of all companies is read, so that polls and live events go before."""

Progress = Callable[[int, int], None]
"""Takes how many items are done, and of how many."""


async def map_concurrently(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], progress: Progress = lambda _done, _total: None
) -> list[R]:
    """The results of the work for each item, in their order. The first error cancels the rest and is raised.

    A few items at once, so that one caller's requests never fill the queue that others wait in.
    """
    items = list(items)
    slots, done = asyncio.Semaphore(CONCURRENT_ITEMS), 0

    async def run(item: T) -> R:
        nonlocal done
        async with slots:
            result = await work(item)
        done += 1
        progress(done, len(items))
        return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class Pace:
    """Spaces requests: those who wait are let through in turn, at most `rate` requests a second."""

    def __init__(self, rate: float = CATCH_UP_RATE, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._next = 0.0

    async def wait(self, requests: int) -> None:
        """Return when so many requests may be made."""
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + requests / self._rate
        if turn > now:
            await asyncio.sleep(turn - now)
