"""Polls a source in the background and keeps the last result for scrapes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from consumer.errors import PaperclipMemoryError
from consumer.exporter.snapshot import LastPoll, Source

T = TypeVar("T")


class SourcePoller(Generic[T]):
    """The last poll of one source. Other threads may read `last`: it is replaced, never changed.

    Args:
        read: reads the source; raises if it does not answer.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        source: Source,
        read: Callable[[], Awaitable[T]],
        log: FilteringBoundLogger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.last: LastPoll[T] = LastPoll()
        self.polled = False
        self._source = source
        self._read = read
        self._log = log
        self._now = now

    async def poll(self) -> None:
        """Read the source once. A failure drops the previous snapshot, which may be outdated."""
        previous, started = self.last, self._now()
        try:
            snapshot = await self._read()
        except Exception as error:  # noqa: BLE001 - the other source and the next poll must go on
            reason = str(error) if isinstance(error, PaperclipMemoryError) else repr(error)
            self.last = LastPoll(None, previous.at, self._now() - started, reason)
            if reason != previous.error:
                self._log.warning("source unavailable", source=self._source, error=reason)
        else:
            ended = self._now()
            self.last = LastPoll(snapshot, ended, ended - started)
            if previous.error:
                self._log.info("source available again", source=self._source)
        self.polled = True

    async def run(self, interval: float) -> None:
        """Poll forever, every `interval` seconds, or as fast as the source answers."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + interval
            await self.poll()
            await asyncio.sleep(max(0.0, due - loop.time()))
