"""Runs the jobs of a lane: starts what the scheduler allows, and acts on what it decides about each result."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from consumer import upstream_success
from consumer.errors import DeadLetterReason, Permanent
from consumer.handlers.results import HandlerResult
from consumer.stream.dead_letter_writer import Write, describe_error, write_dead_letter
from consumer.stream.hooks import AttemptFinished, AttemptOutcome, BreakerChanged, Hook, ParkReason
from consumer.stream.records import Record, WorkItem
from consumer.stream.scheduler import Decision, LaneScheduler, Result

CANCEL_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """The work for one record.

    Attributes:
        handler: the handler's name, from a closed set (a metric label); `ignored` for event types without a handler.
        run: does the work once; raises from `consumer.errors`. None if there is nothing to do.
        facts: log fields of the record: event id, event type, run or comment id.
    """

    handler: str
    run: Callable[[], Awaitable[HandlerResult]] | None
    facts: dict[str, str] = field(default_factory=dict)


JobFactory = Callable[[Record], Job]
"""Makes the job of a record. Raises `Permanent` for a record that can never be decoded."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """The settings of a lane. Times are in seconds.

    Attributes:
        drain_timeout: how long records in flight may take to finish on a revoke or a stop.
        too_large: the error by which the dead-letter writer says that a record does not fit.
    """

    name: str
    dead_letter_topic: str
    drain_timeout: float
    too_large: type[Exception]


class JobExecutor:
    """The jobs in flight, each in a task.

    Args:
        clock: schedules retries and probes.
        wall: the machine's time, for the age of records.

    Attributes:
        tasks: the running tasks, with the item each processes.
        fatal_error: an error of the engine itself, if one occurred; `failed` is set then.
    """

    def __init__(
        self,
        settings: LaneSettings,
        scheduler: LaneScheduler,
        make_job: JobFactory,
        write: Write,
        hook: Hook,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._make_job = make_job
        self._write = write
        self._hook = hook
        self._clock = clock
        self._wall = wall
        self._timer: asyncio.TimerHandle | None = None
        self._breaker_reasons = {upstream: breaker.reason for upstream, breaker in scheduler.breakers.items()}
        self.tasks: dict[asyncio.Task[None], WorkItem] = {}
        self.fatal_error: BaseException | None = None
        self.failed = asyncio.Event()

    def start_ready(self) -> None:
        """Start every record that may start now, and set a timer for the next one that time will make ready."""
        now = self._clock()
        while (item := self._scheduler.start(now)) is not None:
            task = asyncio.create_task(self._run_items(item))
            self.tasks[task] = item
            task.add_done_callback(self._task_done)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._scheduler.next_wake(now)
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._start_ready)

    def _start_ready(self) -> None:
        """As `start_ready`, from a callback, whose errors the event loop would only log."""
        try:
            self.start_ready()
        except Exception as error:  # noqa: BLE001 - the engine's own, whatever it is
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.fatal_error = error
        self.failed.set()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        del self.tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._start_ready()

    async def _run_items(self, item: WorkItem | None) -> None:
        """Process a record and, while records succeed, the next one that may start.

        That saves a task and two turns of the event loop per record. After any other outcome the task ends, so that
        others get their turn first.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        while item is not None:
            self.tasks[task] = item
            item = self._scheduler.start(self._clock()) if await self._process(item) else None

    async def _process(self, item: WorkItem) -> bool:
        """True if the record succeeded."""
        if item.dead_letter_reason is None:
            answered = upstream_success.track()
            result: Result
            try:
                job = self._job_of(item.record)
                item.handler, item.facts = job.handler, job.facts
                result = None if job.run is None else await job.run()
            except Exception as error:  # noqa: BLE001 - foreign exceptions count as transient
                result = error
            except asyncio.CancelledError:
                if item.epoch != self._scheduler.epoch:
                    raise
                result = RuntimeError("the handler was cancelled from inside")
            now = self._clock()
            decision = self._scheduler.finish(item, result, answered, now)
            if decision is None:
                return False
            self._emit_breaker_changes(item.error)
            if not decision.dead_letter:
                self._emit(item, decision, now)
                return decision.outcome is AttemptOutcome.SUCCEEDED
        await self._write_dead_letter(item)
        return False

    def _job_of(self, record: Record) -> Job:
        if record.unreadable:
            raise Permanent(record.unreadable, reason=DeadLetterReason.UNREADABLE)
        return self._make_job(record)

    async def _write_dead_letter(self, item: WorkItem) -> None:
        try:
            await write_dead_letter(item, self._settings.dead_letter_topic, self._write, self._settings.too_large)
        except asyncio.CancelledError:
            if item.epoch != self._scheduler.epoch:
                raise
            self._park_dead_letter(item, "cancelled from inside")
        except Exception as error:  # noqa: BLE001 - whatever the failure, the record parks visibly
            self._park_dead_letter(item, describe_error(error))
        else:
            if self._scheduler.dead_letter_written(item):
                self._emit(item, Decision(AttemptOutcome.DEAD_LETTERED, item.dead_letter_reason), self._clock())

    def _park_dead_letter(self, item: WorkItem, error: str) -> None:
        now = self._clock()
        delay = self._scheduler.dead_letter_failed(item, now)
        if delay is not None:
            item.error = f"{item.error}; its dead letter: {error}" if item.write_attempts == 1 else item.error
            self._emit(item, Decision(AttemptOutcome.RETRIED, ParkReason.DEAD_LETTER_UNAVAILABLE, delay), now)

    def _emit(self, item: WorkItem, decision: Decision, now: float) -> None:
        record = item.record
        self._hook(
            AttemptFinished(
                self._settings.name,
                item.handler,
                decision.outcome,
                now - item.started,
                self._wall() - record.timestamp / 1000,
                item.attempts,
                decision.reason,
                decision.delay,
                "" if decision.outcome is AttemptOutcome.SUCCEEDED else item.error,
                {**item.facts, "topic": record.topic, "partition": record.partition, "offset": record.offset},
            )
        )

    def _emit_breaker_changes(self, error: str) -> None:
        for upstream, breaker in self._scheduler.breakers.items():
            before, after = self._breaker_reasons[upstream], breaker.reason
            if before is not after:
                self._breaker_reasons[upstream] = after
                if before is not None:
                    self._hook(BreakerChanged(self._settings.name, upstream, before, opened=False))
                if after is not None:
                    self._hook(BreakerChanged(self._settings.name, upstream, after, opened=True, error=error))

    async def drain(self, timeout: float) -> bool:
        """Wait for the records in flight; True if all ended within `timeout` seconds."""
        if not self.tasks:
            return True
        _, pending = await asyncio.wait(set(self.tasks), timeout=timeout)
        return not pending

    async def cancel(self) -> None:
        """Cancel the records in flight, and wait briefly for them to end."""
        tasks = set(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)

    def longest(self, now: float) -> float:
        """Seconds that the longest-running attempt has taken; 0 if none runs."""
        return max((now - item.started for item in self.tasks.values()), default=0.0)

    def longest_stack(self) -> str:
        """The stack of the longest-running attempt; "" if none runs."""
        if not self.tasks:
            return ""
        task = min(self.tasks, key=lambda running: self.tasks[running].started)
        lines: list[str] = []
        awaited: object = task.get_coro()
        # `Task.get_stack` returns only the first frame.
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            awaited = getattr(awaited, "cr_await", None)
        return "\n".join(lines)
