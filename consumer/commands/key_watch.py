"""Keeps the metric that says when the Paperclip key ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from consumer.commands.clients import open_paperclip
from consumer.commands.runtime import Process, cancel
from consumer.errors import HandlingError

INTERVAL = 3600.0
"""Seconds between two requests to Paperclip."""
RETRY_INTERVAL = 60.0
"""Seconds until the next request when Paperclip did not answer."""


@asynccontextmanager
async def watch_key(process: Process) -> AsyncIterator[None]:
    """Keep `paperclip_key_expires_timestamp_seconds` until the block ends; does nothing without a Paperclip key."""
    settings = process.settings
    if settings.paperclip_api_url is None or settings.paperclip_api_key is None:
        yield
        return
    watching = asyncio.create_task(_watch(process), name="paperclip key")
    try:
        yield
    finally:
        await cancel(watching)


async def _watch(process: Process) -> None:
    async with open_paperclip(process.settings, 1) as paperclip:
        while True:
            try:
                expires = await paperclip.key_expires_at()
            except HandlingError:  # the lanes and the relay report an upstream that does not answer
                await asyncio.sleep(RETRY_INTERVAL)
                continue
            process.metrics.key_expires.set(expires or 0)
            await asyncio.sleep(INTERVAL)
