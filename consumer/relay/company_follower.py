"""Follows one company: polls comments and runs side by side, each at its own pace, and keeps the positions on Kafka."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from consumer.errors import HandlingError, Transient
from consumer.relay.checkpoints import Checkpoint, CommentPosition, RunPosition
from consumer.relay.hooks import Hook, RelayState, Source, StateChanged, state_from_error
from consumer.relay.protocols import CommentPolling, PollResult, RunPolling
from consumer.relay.websocket import PollTrigger, WebSocketListener
from consumer.stream.retry import RetryPolicy

CONNECTED_POLL_INTERVAL = 5.0
"""Seconds between two polls while the WebSocket reports changes."""
BACK_OFF = RetryPolicy(first=1.0, longest=60.0)


class CheckpointStore(Protocol):
    """Keeps checkpoints. Raises `UpstreamDown`."""

    async def write(self, checkpoint: Checkpoint) -> None: ...


class CompanyFollower:
    """Follows one company.

    Args:
        poll_interval: seconds between two polls; `sweep_interval`: between two full sweeps.

    Attributes:
        states: of each source.
        caught_up_at: start of the last poll that read everything, seconds since the epoch, of each source.
        triggers: start the next poll of each source at once.
        websocket: None if the WebSocket is not used.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        comments: CommentPolling,
        runs: RunPolling,
        checkpoints: CheckpointStore,
        hook: Hook,
        *,
        poll_interval: float,
        sweep_interval: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.company = checkpoint.company_id
        self.states = dict.fromkeys(Source, RelayState.FOLLOWING)
        self.caught_up_at = dict.fromkeys(Source, now())
        self.triggers = {source: PollTrigger() for source in Source}
        self.websocket: WebSocketListener | None = None
        self._checkpoint = checkpoint
        self._comments = comments
        self._runs = runs
        self._checkpoints = checkpoints
        self._hook = hook
        self._poll_interval = poll_interval
        self._sweep_interval = sweep_interval
        self._now = now
        self._saving = asyncio.Lock()

    @property
    def state(self) -> RelayState:
        """The first source's state that is not `following`."""
        return next(
            (state for state in self.states.values() if state is not RelayState.FOLLOWING), RelayState.FOLLOWING
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(Source.COMMENTS, self._poll_comments))
            tasks.create_task(self._follow(Source.RUNS, self._poll_runs))
            if self.websocket is not None:
                tasks.create_task(self.websocket.run())

    async def _follow(
        self, source: Source, poll: Callable[[bool, tuple[str, ...]], Awaitable[PollResult[Any]]]
    ) -> None:
        trigger, failures, swept_at = self.triggers[source], 0, 0.0
        while True:
            changed, full_sweep = trigger.take()
            started = self._now()
            full_sweep = full_sweep or started - swept_at >= self._sweep_interval
            try:
                result = await poll(full_sweep, changed)
            except (HandlingError, AttributeError, LookupError, TypeError, ValueError) as error:
                failures += 1
                trigger.set(runs=changed, full_sweep=full_sweep)
                await asyncio.sleep(self._report_failure(source, error, failures))
                continue
            failures = 0
            if full_sweep and result.settled:
                swept_at = started
            if self.states[source] is not RelayState.FOLLOWING:
                self._change_state(source, RelayState.FOLLOWING)
            if result.more:
                continue
            self.caught_up_at[source] = started
            connected = self.websocket is not None and self.websocket.connected
            await trigger.wait(CONNECTED_POLL_INTERVAL if connected else self._poll_interval)

    async def _poll_comments(self, full_sweep: bool, _changed: tuple[str, ...]) -> PollResult[CommentPosition]:
        result = await self._comments.poll(self._checkpoint.comments, full_sweep=full_sweep)
        await self._save({"comments": result.position})
        return result

    async def _poll_runs(self, full_sweep: bool, changed: tuple[str, ...]) -> PollResult[RunPosition]:
        result = await self._runs.poll(self._checkpoint.runs, full_sweep=full_sweep, changed=changed)
        await self._save({"runs": result.position})
        return result

    async def _save(self, update: dict[str, object]) -> None:
        """Keep a position; the events before it are acknowledged by now."""
        async with self._saving:
            self._checkpoint = self._checkpoint.model_copy(update=update)
            await self._checkpoints.write(self._checkpoint)

    def _report_failure(self, source: Source, error: Exception, failures: int) -> float:
        """Report a failed poll; seconds until the next. An error outside our tree comes of an unexpected answer."""
        retry_after = error.retry_after if isinstance(error, Transient) else None
        delay = BACK_OFF.delay(failures, retry_after)
        if isinstance(error, HandlingError):
            self._change_state(source, state_from_error(error), str(error), delay)
        else:
            self._change_state(source, RelayState.FAILING, f"unexpected answer of Paperclip: {error!r}", delay)
        return delay

    def _change_state(self, source: Source, state: RelayState, error: str = "", retry_in: float = 0.0) -> None:
        self.states[source] = state
        self._hook(StateChanged(self.company, source, state, error, retry_in))
