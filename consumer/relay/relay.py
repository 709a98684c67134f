"""Follows all companies that the key can see: finds new ones, and leaves those that are gone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from consumer.errors import HandlingError
from consumer.paperclip.client import PaperclipClient
from consumer.relay.checkpoints import Checkpoint, Checkpoints
from consumer.relay.company_follower import BACK_OFF, Company
from consumer.relay.signals import Notify, RelayState, Source, Told, state_of
from consumer.relay.times import http_date, instant, iso

T = TypeVar("T")

DISCOVERY = 10.0
"""Seconds between two looks for new companies."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to follow.

    Attributes:
        companies: None or empty: all that the key can see.
        start: `now`, `beginning`, or an ISO 8601 time; counts when the relay is first started.
    """

    companies: Collection[str] | None
    start: str


class Relay:
    """The relay.

    Args:
        open_company: makes the follower of a company from where it was left.
        now: seconds since the epoch.

    Attributes:
        companies: those that are followed, by id.
        ready: whether checkpoints were read and companies were asked for.
    """

    def __init__(
        self,
        plan: Plan,
        paperclip: PaperclipClient,
        checkpoints: Checkpoints,
        open_company: Callable[[Checkpoint], Company],
        notify: Notify,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._paperclip = paperclip
        self._checkpoints = checkpoints
        self._open_company = open_company
        self._notify = notify
        self._now = now
        self._begun = now()
        self._trouble: RelayState | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self.companies: dict[str, Company] = {}
        self.ready = False

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            Exception: following a company failed by a bug: the process must end and be started again.
        """
        try:
            start = await self._patiently("reading the checkpoints", self._begin)
            while True:
                ids = await self._patiently("asking for companies", self._visible)
                await self._follow(ids, start)
                self.ready = True
                if self._following:
                    await asyncio.wait(self._following.values(), timeout=DISCOVERY, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(DISCOVERY)
                for task in self._following.values():
                    if task.done():
                        task.result()
        finally:
            await self._leave(list(self._following))

    def states(self) -> list[RelayState]:
        """How it goes, a company at a time; of the relay itself while it finds none."""
        if not self.companies:
            return [self._trouble] if self._trouble is not None else []
        return [company.state for company in self.companies.values()]

    def read_at(self, source: Source) -> float:
        """Since when all that there is has been read, seconds since the epoch, of the company furthest behind."""
        return min((company.read_at[source] for company in self.companies.values()), default=self._begun)

    async def _patiently(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        failures = 0
        while True:
            try:
                answer = await ask()
            except HandlingError as error:
                failures += 1
                self._trouble = state_of(error)
                delay = BACK_OFF.delay(failures)
                told: dict[str, str | float] = {
                    "state": self._trouble,
                    "error": str(error),
                    "retry_in": round(delay, 1),
                }
                self._notify(Told(f"{what} failed", told))
                await asyncio.sleep(delay)
            else:
                self._trouble = None
                return answer

    async def _begin(self) -> float:
        """Read the checkpoints; where to begin with companies that have none."""
        await self._checkpoints.read()
        start = self._checkpoints.start
        if start is None:
            start = await self._first_start()
            await self._checkpoints.begin(start)
        self._notify(Told("following Paperclip", {"from": iso(start), "relay_start": self._plan.start}, expected=True))
        return start

    async def _first_start(self) -> float:
        if self._plan.start == "beginning":
            return 0.0
        if self._plan.start != "now":
            return instant(self._plan.start)
        shown = await self._paperclip.server_date()  # Paperclip's clock, not ours: its rows are compared with it
        try:
            return http_date(shown or "")
        except ValueError:
            return self._now()

    async def _visible(self) -> list[str]:
        identity = await self._paperclip.authenticate()
        wanted = self._plan.companies
        for company in set(wanted or ()) - set(identity.company_ids):
            self._notify(Told("the key shows no such company", {"company": company}))
        return [each for each in identity.company_ids if not wanted or each in wanted]

    async def _follow(self, ids: Collection[str], start: float) -> None:
        await self._leave([each for each in self._following if each not in ids])
        for id_ in ids:
            if id_ not in self._following:
                checkpoint = self._checkpoints.of(id_) or Checkpoint.fresh(id_, start)
                company = self.companies[id_] = self._open_company(checkpoint)
                self._following[id_] = asyncio.create_task(company.run(), name=f"company {id_}")
                self._notify(Told("following a company", {"company": id_}, expected=True))

    async def _leave(self, ids: Collection[str]) -> None:
        tasks = [self._following.pop(each) for each in ids]
        for task in tasks:
            task.cancel()
        for id_ in ids:
            del self.companies[id_]
        if tasks:
            await asyncio.wait(tasks)
