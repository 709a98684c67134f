"""Follows one company: comments and runs side by side, each at its own pace, with what was read kept on Kafka."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from consumer.errors import HandlingError, Transient
from consumer.relay.checkpoints import Checkpoint, Checkpoints
from consumer.relay.comment_poller import CommentFeed
from consumer.relay.run_poller import RunFeed
from consumer.relay.signals import Moved, Notify, RelayState, Source, state_of
from consumer.relay.websocket import Hints, Wake
from consumer.stream.retry import RetryPolicy

HINTED = 5.0
"""Seconds between two looks while the WebSocket says when to look."""
BACK_OFF = RetryPolicy(first=1.0, longest=60.0)


class Progress(NamedTuple):
    """Whether there is more to read at once, and whether a thorough look need not be repeated soon."""

    more: bool
    settled: bool


class Company:
    """One company.

    Args:
        poll: seconds between two looks; `sweep`: between two thorough ones.
        hints: None if the WebSocket is not to be used.

    Attributes:
        states: how following goes, by what is read.
        read_at: when all that there was had been read last, seconds since the epoch, by what is read.
    """

    def __init__(
        self,
        at: Checkpoint,
        comments: CommentFeed,
        runs: RunFeed,
        checkpoints: Checkpoints,
        notify: Notify,
        *,
        poll: float,
        sweep: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.id = at.company_id
        self.states = dict.fromkeys(Source, RelayState.FOLLOWING)
        self.read_at = dict.fromkeys(Source, now())
        self.wakes = {source: Wake() for source in Source}
        self.hints: Hints | None = None
        self._at = at
        self._comments = comments
        self._runs = runs
        self._checkpoints = checkpoints
        self._notify = notify
        self._poll = poll
        self._sweep = sweep
        self._now = now
        self._saving = asyncio.Lock()

    @property
    def state(self) -> RelayState:
        """How following goes, at its worst."""
        return next(
            (state for state in self.states.values() if state is not RelayState.FOLLOWING), RelayState.FOLLOWING
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(Source.COMMENTS, self._look_at_comments))
            tasks.create_task(self._follow(Source.RUNS, self._look_at_runs))
            if self.hints is not None:
                tasks.create_task(self.hints.run())

    async def _follow(self, source: Source, look: Callable[[bool, tuple[str, ...]], Awaitable[Progress]]) -> None:
        wake, failures, swept = self.wakes[source], 0, 0.0
        while True:
            hinted, thorough = wake.take()
            started = self._now()
            thorough = thorough or started - swept >= self._sweep
            try:
                more, settled = await look(thorough, hinted)
            except (HandlingError, LookupError, TypeError, ValueError) as error:
                failures += 1
                wake.set(runs=hinted, thorough=thorough)
                await asyncio.sleep(self._failed(source, error, failures))
                continue
            failures = 0
            if thorough and settled:
                swept = started
            if self.states[source] is not RelayState.FOLLOWING:
                self._move(source, RelayState.FOLLOWING)
            if more:
                continue
            self.read_at[source] = started
            await wake.wait(HINTED if self.hints is not None and self.hints.connected else self._poll)

    async def _look_at_comments(self, thorough: bool, _hinted: tuple[str, ...]) -> Progress:
        looked = await self._comments.look(self._at.comments, thorough=thorough)
        await self._save({"comments": looked.position})
        return Progress(looked.more, looked.settled)

    async def _look_at_runs(self, thorough: bool, hinted: tuple[str, ...]) -> Progress:
        position = await self._runs.look(self._at.runs, thorough=thorough, hinted=hinted)
        await self._save({"runs": position})
        return Progress(more=False, settled=True)

    async def _save(self, update: dict[str, object]) -> None:
        """Keep how far was read; its events are acknowledged by now."""
        async with self._saving:
            self._at = self._at.model_copy(update=update)
            await self._checkpoints.write(self._at)

    def _failed(self, source: Source, error: Exception, failures: int) -> float:
        """Say so, and how many seconds to wait. What is no error of ours is an odd answer of Paperclip."""
        asked = error.retry_after if isinstance(error, Transient) else None
        delay = BACK_OFF.delay(failures, asked)
        if isinstance(error, HandlingError):
            self._move(source, state_of(error), str(error), delay)
        else:
            self._move(source, RelayState.FAILING, f"an answer of Paperclip's has another shape: {error!r}", delay)
        return delay

    def _move(self, source: Source, state: RelayState, error: str = "", retry_in: float = 0.0) -> None:
        self.states[source] = state
        self._notify(Moved(self.id, source, state, error, retry_in))
