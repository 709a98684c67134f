"""Looks at a source again and again, in the background, and keeps the last outcome for whoever asks."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from consumer.errors import PaperclipMemoryError
from consumer.exporter.snapshot import Outcome, Source

T = TypeVar("T")


class Lookout(Generic[T]):
    """The last outcome of one source. Other threads may read `outcome`: each is a new value.

    Args:
        look: asks the source; raises when it does not answer.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        source: Source,
        look: Callable[[], Awaitable[T]],
        log: FilteringBoundLogger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.outcome: Outcome[T] = Outcome()
        self.looked = False
        self._source = source
        self._look = look
        self._log = log
        self._now = now

    async def once(self) -> None:
        """Look now. A failure leaves nothing to be seen: what was true before may be so no longer."""
        before, started = self.outcome, self._now()
        try:
            seen = await self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other source and the next look must go on
            ended, reason = self._now(), self._reason(error)
            self.outcome = Outcome(None, before.at, ended - started, reason)
            if reason != before.error:
                self._log.warning("a source does not answer", source=self._source, error=reason)
        else:
            ended = self._now()
            self.outcome = Outcome(seen, ended, ended - started)
            if before.error:
                self._log.info("a source answers again", source=self._source)
        self.looked = True

    @staticmethod
    def _reason(error: Exception) -> str:
        return str(error) if isinstance(error, PaperclipMemoryError) else repr(error)

    async def run(self, interval: float) -> None:
        """Look for ever, every `interval` seconds, or as often as the source lets us."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + interval
            await self.once()
            await asyncio.sleep(max(0.0, due - loop.time()))
