"""The relay's parts on a fake Paperclip, with a recording publisher and hook."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from consumer.paperclip.models import Identity, KeyKind
from consumer.relay.checkpoints import Checkpoint, CommentPosition, RunPosition
from consumer.relay.comment_poller import CommentPoller
from consumer.relay.company_follower import CompanyFollower
from consumer.relay.concurrency import Pace
from consumer.relay.enrichment import EventEnricher
from consumer.relay.hooks import Notice, RelayEvent, RelayState, Source, StateChanged
from consumer.relay.protocols import PollResult
from consumer.relay.relay import Relay, RelayConfig
from consumer.relay.run_poller import RunPoller
from tests.support.fake_feed import COMPANY, NOON, FakeFeedClient, RecordingPublisher

P = TypeVar("P", CommentPosition, RunPosition)


class ScriptedPoller(Generic[P]):
    """In place of a `CommentPoller` or `RunPoller`: records its polls, and answers by `answer`.

    Attributes:
        sweeps, changed: the arguments of each poll.
    """

    def __init__(self) -> None:
        self.answer: Callable[[P], PollResult[P]] = PollResult
        self.sweeps: list[bool] = []
        self.changed: list[Collection[str]] = []

    async def poll(self, position: P, *, full_sweep: bool, changed: Collection[str] = ()) -> PollResult[P]:
        self.sweeps.append(full_sweep)
        self.changed.append(changed)
        return self.answer(position)


class RecordingPace(Pace):
    """Lets everybody through at once. `requests`: how many were announced."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    async def wait(self, requests: int) -> None:
        self.requests += requests


class FakeCheckpoints:
    """In place of `Checkpoints`."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.companies: dict[str, Checkpoint] = {}
        self.written: list[Checkpoint] = []
        self.failures: list[Exception] = []

    async def read(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    async def write_start(self, start: float) -> None:
        self.start = start

    def get(self, company: str) -> Checkpoint | None:
        return self.companies.get(company)

    async def write(self, checkpoint: Checkpoint) -> None:
        self.written.append(checkpoint)


class FakeServer:
    """In place of a `PaperclipClient` that only names companies."""

    def __init__(self) -> None:
        self.companies: tuple[str, ...] = (COMPANY,)
        self.date: str | None = "Mon, 30 Nov 2026 12:00:00 GMT"
        self.failures: list[Exception] = []

    async def authenticate(self) -> Identity:
        if self.failures:
            raise self.failures.pop(0)
        return Identity(KeyKind.BOARD, self.companies)

    async def server_date(self) -> str | None:
        return self.date


class FakeFollower:
    """In place of a `CompanyFollower`: runs until it is stopped, or fails with `error`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.state = RelayState.FOLLOWING
        self.caught_up_at = dict.fromkeys(Source, NOON)
        self.stopped = False
        self.error: Exception | None = None

    async def run(self) -> None:
        try:
            while self.error is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            raise self.error
        finally:
            self.stopped = True


class RelayHarness:
    """One company.

    Args:
        start: older events are not published, seconds since the epoch.
        every_issue: as `EventEnricher`'s.
    """

    def __init__(self, start: float = NOON, *, every_issue: bool = False) -> None:
        self.start = start
        self.feed, self.server, self.checkpoints = FakeFeedClient(), FakeServer(), FakeCheckpoints()
        self.reported: list[RelayEvent] = []
        self.pace = RecordingPace()
        self.enricher = EventEnricher(
            self.feed, self.reported.append, True, every_issue, lambda: self.feed.now, pace=self.pace
        )
        self.comment_position = CommentPosition(activity=start, issues=start)
        self.run_position = RunPosition(created=start)
        self.followers: dict[str, FakeFollower] = {}
        self.restart()

    def restart(self) -> None:
        """Another process goes on: it knows nothing but the positions."""
        self.publisher = RecordingPublisher()
        parts = (self.feed, self.publisher, self.enricher, self.reported.append, COMPANY, self.start)
        self.comment_poller, self.run_poller = CommentPoller(*parts), RunPoller(*parts)

    async def poll_comments(self, *, full_sweep: bool = True) -> PollResult[CommentPosition]:
        result = await self.comment_poller.poll(self.comment_position, full_sweep=full_sweep)
        self.comment_position = result.position
        return result

    async def poll_runs(self, *changed: str, full_sweep: bool = True) -> None:
        result = await self.run_poller.poll(self.run_position, full_sweep=full_sweep, changed=changed)
        self.run_position = result.position

    def follower(
        self,
        comments: ScriptedPoller[CommentPosition],
        runs: ScriptedPoller[RunPosition],
        *,
        poll_interval: float = 0.001,
        sweep_interval: float = 10.0,
    ) -> CompanyFollower:
        return CompanyFollower(
            Checkpoint.fresh(COMPANY, self.start),
            comments,
            runs,
            self.checkpoints,
            self.reported.append,
            poll_interval=poll_interval,
            sweep_interval=sweep_interval,
            now=lambda: self.feed.now,
        )

    def relay(self, start: str = "now", companies: Collection[str] | None = None) -> Relay:
        """A relay whose own clock is 500 s ahead of Paperclip's."""

        def open_follower(checkpoint: Checkpoint) -> FakeFollower:
            follower = self.followers[checkpoint.company_id] = FakeFollower(checkpoint)
            return follower

        config = RelayConfig(companies, start)
        return Relay(config, self.server, self.checkpoints, open_follower, self.reported.append, lambda: NOON + 500)

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.reported if isinstance(event, Notice)]

    @property
    def states(self) -> list[RelayState]:
        """The states that were reported, in order."""
        return [event.state for event in self.reported if isinstance(event, StateChanged)]


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run it meanwhile; cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually(condition: Callable[[], bool], task: asyncio.Task[None]) -> None:
    """Wait until the task has brought about a condition; raises what the task raises."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)
            if task.done():
                task.result()
