"""Follows all companies that the key can see: picks up new ones, and stops following those that are gone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar

from consumer.errors import HandlingError
from consumer.paperclip.models import Identity
from consumer.relay.checkpoints import Checkpoint
from consumer.relay.company_follower import BACK_OFF
from consumer.relay.hooks import Hook, Notice, RelayState, Source, state_from_error
from schemas.timestamps import format_timestamp, parse_timestamp

T = TypeVar("T")

DISCOVERY_INTERVAL = 10.0
"""Seconds between two requests for the list of companies."""


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """What to follow.

    Attributes:
        companies: None or empty: all that the key can see.
        start: `now`, `beginning`, or an ISO 8601 time; counts when the relay is first started.
    """

    companies: Collection[str] | None
    start: str


class InstanceClient(Protocol):
    """The part of `PaperclipClient` that names the companies. Each method raises from `consumer.errors`."""

    async def authenticate(self) -> Identity: ...

    async def server_date(self) -> str | None: ...


class StartCheckpoints(Protocol):
    """The part of `Checkpoints` that says where to start. Each method raises `UpstreamDown`."""

    start: float | None

    async def read(self) -> None: ...

    async def write_start(self, start: float) -> None: ...

    def get(self, company: str) -> Checkpoint | None: ...


class Follower(Protocol):
    """The part of `CompanyFollower` that the relay needs."""

    @property
    def caught_up_at(self) -> Mapping[Source, float]: ...

    @property
    def state(self) -> RelayState: ...

    async def run(self) -> None: ...


class Relay:
    """The relay.

    Args:
        open_follower: makes the follower of a company that goes on at a checkpoint.
        now: seconds since the epoch.

    Attributes:
        followers: by company.
        ready: whether checkpoints and companies have been read.
    """

    def __init__(
        self,
        config: RelayConfig,
        paperclip: InstanceClient,
        checkpoints: StartCheckpoints,
        open_follower: Callable[[Checkpoint], Follower],
        hook: Hook,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._paperclip = paperclip
        self._checkpoints = checkpoints
        self._open_follower = open_follower
        self._hook = hook
        self._now = now
        self._started_at = now()
        self._failure: RelayState | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.followers: dict[str, Follower] = {}
        self.ready = False

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            Exception: a bug in following a company: the process must end and be started again.
        """
        try:
            start = await self._retry("reading the checkpoints", self._load_start)
            while True:
                companies = await self._retry("listing companies", self._list_companies)
                await self._follow(companies, start)
                self.ready = True
                if self._tasks:
                    await asyncio.wait(
                        self._tasks.values(), timeout=DISCOVERY_INTERVAL, return_when=asyncio.FIRST_COMPLETED
                    )
                else:
                    await asyncio.sleep(DISCOVERY_INTERVAL)
                for task in self._tasks.values():
                    if task.done():
                        task.result()
        finally:
            await self._stop_following(list(self._tasks))

    def states(self) -> list[RelayState]:
        """The state of each company; the relay's own while it finds none."""
        if not self.followers:
            return [self._failure] if self._failure is not None else []
        return [follower.state for follower in self.followers.values()]

    def caught_up_at(self, source: Source) -> float:
        """When the furthest-behind company was fully read last, seconds since the epoch."""
        times = (follower.caught_up_at[source] for follower in self.followers.values())
        return min(times, default=self._started_at)

    async def _retry(self, action: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        failures = 0
        while True:
            try:
                answer = await ask()
            except HandlingError as error:
                failures += 1
                self._failure = state_from_error(error)
                delay = BACK_OFF.delay(failures)
                fields: dict[str, str | float] = {
                    "state": self._failure,
                    "error": str(error),
                    "retry_in": round(delay, 1),
                }
                self._hook(Notice(f"{action} failed", fields))
                await asyncio.sleep(delay)
            else:
                self._failure = None
                return answer

    async def _load_start(self) -> float:
        """Read the checkpoints; where to start with companies that have none."""
        await self._checkpoints.read()
        start = self._checkpoints.start
        if start is None:
            start = await self._first_start()
            await self._checkpoints.write_start(start)
        fields = {"from": format_timestamp(start), "relay_start": self._config.start}
        self._hook(Notice("following Paperclip", fields, expected=True))
        return start

    async def _first_start(self) -> float:
        if self._config.start == "beginning":
            return 0.0
        if self._config.start != "now":
            return parse_timestamp(self._config.start)
        date = await self._paperclip.server_date()  # Paperclip's clock, not ours: its rows are compared with it
        try:
            return parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return self._now()

    async def _list_companies(self) -> list[str]:
        visible = (await self._paperclip.authenticate()).company_ids
        configured = self._config.companies
        for company in set(configured or ()) - set(visible):
            self._hook(Notice("the key cannot see a configured company", {"company": company}))
        return [company for company in visible if not configured or company in configured]

    async def _follow(self, companies: Collection[str], start: float) -> None:
        gone = [company for company in self._tasks if company not in companies]
        await self._stop_following(gone)
        for company in gone:
            fields = {"company": company, "fix": "give the key access again; the company's memories stay in Hindsight"}
            self._hook(Notice("the key can no longer see a company: not following it", fields))
        for company in companies:
            if company not in self._tasks:
                checkpoint = self._checkpoints.get(company) or Checkpoint.fresh(company, start)
                follower = self.followers[company] = self._open_follower(checkpoint)
                self._tasks[company] = asyncio.create_task(follower.run(), name=f"company {company}")
                self._hook(Notice("following a company", {"company": company}, expected=True))

    async def _stop_following(self, companies: Collection[str]) -> None:
        tasks = [self._tasks.pop(company) for company in companies]
        for task in tasks:
            task.cancel()
        for company in companies:
            del self.followers[company]
        if tasks:
            await asyncio.wait(tasks)
