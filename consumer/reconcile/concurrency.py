"""Works through a list, several items at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

CONCURRENT_ITEMS = 8

Progress = Callable[[int, int], None]
"""Takes how many items are done, and of how many."""


async def for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]], progress: Progress) -> None:
    """Do the work for each item. The first error ends everything and is raised."""
    slots, done = asyncio.Semaphore(CONCURRENT_ITEMS), 0

    async def run(item: T) -> None:
        nonlocal done
        async with slots:
            await work(item)
        done += 1
        progress(done, len(items))

    try:
        async with asyncio.TaskGroup() as tasks:
            for item in items:
                tasks.create_task(run(item))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
