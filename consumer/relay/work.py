"""Working through a list, several items at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 8

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


async def each_of(items: Sequence[T], work: Callable[[T], Awaitable[None]], progress: Progress) -> None:
    """Do the work for each item. The first that fails ends all, and its error is raised."""
    slots, done = asyncio.Semaphore(AT_ONCE), 0

    async def one(item: T) -> None:
        nonlocal done
        async with slots:
            await work(item)
        done += 1
        progress(done, len(items))

    try:
        async with asyncio.TaskGroup() as tasks:
            for item in items:
                tasks.create_task(one(item))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
