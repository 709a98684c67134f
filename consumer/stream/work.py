"""The work of a lane: starts the jobs that its core says may start, and turns what they come to into what follows."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from consumer import upstream_success
from consumer.stream.core import LaneCore, Result, Verdict, in_words
from consumer.stream.dead_letters import Write, write_dead_letter
from consumer.stream.items import Item
from consumer.stream.jobs import Resolve
from consumer.stream.signals import Attempted, BreakerMoved, Ending, Notify, ParkReason

CANCEL_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """What a lane is told. Times in seconds.

    Attributes:
        drain_timeout: how long records in flight may take to end when partitions are revoked or the lane stops.
        too_large: the error by which `write` says that a record does not fit.
    """

    name: str
    dead_letter_topic: str
    drain_timeout: float
    too_large: type[Exception]


class Work:
    """The jobs in flight, each in a task.

    Args:
        clock: tells when what waits is due.
        wall: the machine's time, for the age of records.

    Attributes:
        tasks: what runs now.
        bug: an error of the engine's own, if one came up.
    """

    def __init__(
        self,
        settings: LaneSettings,
        core: LaneCore,
        resolve: Resolve,
        write: Write,
        notify: Notify,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._core = core
        self._resolve = resolve
        self._write = write
        self._notify = notify
        self._clock = clock
        self._wall = wall
        self._wake: asyncio.TimerHandle | None = None
        self._open = {upstream: breaker.reason for upstream, breaker in core.breakers.items()}
        self.tasks: dict[asyncio.Task[None], Item] = {}
        self.bug: BaseException | None = None

    def pump(self) -> None:
        """Start whatever may start now, and be back when that may change by itself."""
        now = self._clock()
        while (item := self._core.start(now)) is not None:
            task = asyncio.create_task(self._work_on(item))
            self.tasks[task] = item
            task.add_done_callback(self._ended)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        due = self._core.next_wake(now)
        if due is not None:
            self._wake = asyncio.get_running_loop().call_later(max(0.0, due - now), self.pump)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self.tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.bug = error
        self.pump()

    async def _work_on(self, item: Item | None) -> None:
        """Work on a record and, if it succeeded, on the next that may start.

        That saves a task and two turns of the event loop. A record that ended otherwise may have waited for nothing:
        then others have their turn first.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        while item is not None:
            self.tasks[task] = item
            item = self._core.start(self._clock()) if await self._work(item) else None

    async def _work(self, item: Item) -> bool:
        """True if the record succeeded."""
        if item.dead is None:
            answered = upstream_success.collect()
            result: Result
            try:
                job = self._resolve(item.record)
                item.handler, item.facts = job.handler, job.facts
                result = None if job.run is None else await job.run()
            except Exception as error:  # noqa: BLE001 - any exception that is not ours counts as transient
                result = error
            except asyncio.CancelledError:
                if item.epoch != self._core.epoch:
                    raise
                result = RuntimeError("the handler was cancelled from inside")
            now = self._clock()
            verdict = self._core.finish(item, result, answered, now)
            if verdict is None:
                return False
            self._watch_breakers(item.error)
            if not verdict.dead:
                self._tell(item, verdict, now)
                return verdict.ending is Ending.SUCCEEDED
        await self._bury(item)
        return False

    async def _bury(self, item: Item) -> None:
        try:
            await write_dead_letter(item, self._settings.dead_letter_topic, self._write, self._settings.too_large)
        except asyncio.CancelledError:
            if item.epoch != self._core.epoch:
                raise
            self._hold(item, "cancelled from inside")
        except Exception as error:  # noqa: BLE001 - the record waits, visibly, whatever kept it from being written
            self._hold(item, in_words(error))
        else:
            if self._core.dead_letter_written(item):
                self._tell(item, Verdict(Ending.DEAD_LETTERED, item.dead), self._clock())

    def _hold(self, item: Item, error: str) -> None:
        now = self._clock()
        delay = self._core.dead_letter_failed(item, now)
        if delay is not None:
            item.error = f"{item.error}; its dead letter: {error}" if item.writes == 1 else item.error
            self._tell(item, Verdict(Ending.RETRIED, ParkReason.DEAD_LETTER_UNAVAILABLE, delay), now)

    def _tell(self, item: Item, verdict: Verdict, now: float) -> None:
        record = item.record
        self._notify(
            Attempted(
                self._settings.name,
                item.handler,
                verdict.ending,
                now - item.started,
                self._wall() - record.timestamp / 1000,
                item.attempts,
                verdict.reason,
                verdict.delay,
                "" if verdict.ending is Ending.SUCCEEDED else item.error,
                {**item.facts, "topic": record.topic, "partition": record.partition, "offset": record.offset},
            )
        )

    def _watch_breakers(self, error: str) -> None:
        for upstream, breaker in self._core.breakers.items():
            was, now = self._open[upstream], breaker.reason
            if was is not now:
                self._open[upstream] = now
                if was is not None:
                    self._notify(BreakerMoved(self._settings.name, upstream, was, opened=False))
                if now is not None:
                    self._notify(BreakerMoved(self._settings.name, upstream, now, opened=True, error=error))

    async def drain(self, timeout: float) -> bool:
        """Wait for what is in flight; True if all of it ended within `timeout` seconds."""
        if not self.tasks:
            return True
        _, pending = await asyncio.wait(set(self.tasks), timeout=timeout)
        return not pending

    async def cancel(self) -> None:
        """Cancel what is in flight, and wait a little for it to end."""
        tasks = set(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)

    def longest(self, now: float) -> float:
        """Seconds that the longest-running attempt has taken; 0 if none runs."""
        return max((now - item.started for item in self.tasks.values()), default=0.0)

    def stuck_stack(self) -> str:
        """Where the task hangs that has been in flight for longest; "" if none is."""
        if not self.tasks:
            return ""
        task = min(self.tasks, key=lambda each: self.tasks[each].started)
        lines: list[str] = []
        awaited: object = task.get_coro()
        # `Task.get_stack` knows only the first frame.
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            awaited = getattr(awaited, "cr_await", None)
        return "\n".join(lines)
