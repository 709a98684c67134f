"""A lane: one consumer, one group, one set of jobs, one in-flight limit. Nothing is shared between lanes.

    poll → deliver → start → job → finish → commit
                       ▲        └→ park, or dead letter first
                       └─ when its time comes

`LaneCore` decides; this shell does what it says.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from consumer import evidence
from consumer.stream.commits import Committer
from consumer.stream.core import LaneCore, Result, Verdict, in_words
from consumer.stream.dead_letters import Write, write_dead_letter
from consumer.stream.items import Item
from consumer.stream.jobs import Resolve
from consumer.stream.records import Partition
from consumer.stream.signals import (
    Attempted,
    BreakerMoved,
    Ending,
    LaneState,
    Notify,
    ParkReason,
    PollFailed,
    Rebalanced,
    RebalanceKind,
)
from consumer.stream.source import Batch, Source, SourceClosed

POLL_TIMEOUT = 0.2
POLL_RECORDS = 500
TICK = 1.0
CANCEL_TIMEOUT = 1.0
REWIND_TIMEOUT = 10.0
POLL_BACKOFF = 1.0
JOIN_BACKOFF = 2.0


def by_topic(partitions: Iterable[Partition]) -> dict[str, int]:
    """How many partitions of each topic."""
    return dict(Counter(partition.topic for partition in partitions))


def steady_clock() -> Callable[[], float]:
    """A clock of seconds since the epoch that does not follow when the machine's time is put right: what waits for a
    time must not wait for longer, or less long.
    """
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


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


class Lane:
    """Runs one lane until it is stopped.

    Args:
        clock: tells when what waits is due; None: a `steady_clock`.
        wall: the machine's time, which others' times are held against.
    """

    def __init__(
        self,
        settings: LaneSettings,
        core: LaneCore,
        source: Source,
        resolve: Resolve,
        write: Write,
        notify: Notify,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._core = core
        self._source = source
        self._resolve = resolve
        self._write = write
        self._notify = notify
        self._clock = clock or steady_clock()
        self._wall = wall
        self._committer = Committer(self.name, core, source, notify, self._clock, wall)
        self._tasks: dict[asyncio.Task[None], Item] = {}
        self._wake: asyncio.TimerHandle | None = None
        self._closing = asyncio.Event()
        self._left = asyncio.Event()
        self._releasing = asyncio.Lock()
        self._bug: BaseException | None = None
        self._open = {upstream: breaker.reason for upstream, breaker in core.breakers.items()}
        self._joined = False
        self._rebalancing = True
        self._last_poll = wall()

    async def run(self) -> None:
        """Consume until `stop`.

        Raises:
            Exception: a bug of the engine.
        """
        polling = asyncio.create_task(self._consume(), name=f"{self.name}-poll")
        ticking = asyncio.create_task(self._tick_loop(), name=f"{self.name}-tick")
        # During a rebalance `getmany` waits for an assignment; after `stop` that never comes.
        leaving = asyncio.create_task(self._left.wait(), name=f"{self.name}-leave")
        tasks = {polling, ticking, leaving}
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _consume(self) -> None:
        await self._join()
        await self._poll_loop()

    async def _join(self) -> None:
        """Start the consumer; while Kafka is not there, try again."""
        while not self._closing.is_set():
            try:
                await self._source.start(self)
            except Exception as error:  # noqa: BLE001 - Kafka may not be up yet; `check` tells what is wrong for good
                self._notify(PollFailed(self.name, f"Kafka is not reached yet: {type(error).__name__}: {error}"))
                await self._pause_for(JOIN_BACKOFF)
            else:
                return

    async def stop(self, deadline: float) -> None:
        """Drain, commit and leave the group within `deadline` seconds; then let go, whatever still hangs."""
        self._closing.set()
        try:
            async with asyncio.timeout(deadline):
                await self._release(min(self._settings.drain_timeout, deadline / 2))
                await self._source.stop()
        except TimeoutError:
            self._notify(PollFailed(self.name, f"the consumer did not stop within {deadline:g} s"))
        finally:
            self._left.set()

    # Records in

    async def _poll_loop(self) -> None:
        while not self._closing.is_set():
            if self._bug is not None:
                raise self._bug  # the engine's own: end, rather than go on with a record that nobody has
            try:
                if not self._committer.trusted:
                    await self._rewind()
                batches = await self._source.poll(POLL_TIMEOUT, POLL_RECORDS)
            except SourceClosed:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is: go back to what was not delivered, and go on
                self._committer.distrust_positions()
                self._notify(PollFailed(self.name, f"{type(error).__name__}: {error}"))
                await self._pause_for(POLL_BACKOFF)
                continue
            self._last_poll = self._wall()
            if batches:
                self._begin_assignment()
                if rewound := [batch for batch in batches if self._core.rewound(batch.partition, batch.records)]:
                    await self._start_over(rewound)
                    continue
                for batch in batches:
                    self._core.deliver(batch.partition, batch.records, batch.position)
            self._regulate()
            self._pump()

    async def _start_over(self, rewound: list[Batch]) -> None:
        """A partition's log was cut off: offsets that we know stand for other records now. Read it from where it begins
        again, and the others from what is committed.
        """
        for batch in rewound:
            first, (topic, number) = batch.records[0].offset, batch.partition
            self._notify(
                PollFailed(self.name, f"the log of {topic}[{number}] was cut off: it is read from {first} again")
            )
        self._core.start_over({batch.partition: batch.records[0].offset for batch in rewound})
        self._committer.distrust_positions()
        await self._cancel_jobs()

    async def _rewind(self) -> None:
        """A failed poll has lost the records that it had already taken of other partitions: read them again.

        Partitions that lost nothing are left alone: a seek drops what is prefetched, and one partition that cannot be
        read would keep all others from being read.
        """
        trackers = self._core.trackers
        async with asyncio.timeout(REWIND_TIMEOUT):
            for partition, tracker in list(trackers.items()):
                moved = await self._source.position(partition) != tracker.position
                if moved and self._core.trackers is trackers:
                    self._source.seek(partition, tracker.position)
            await self._source.seek_to_committed(self._core.assigned - self._core.trackers.keys())
        self._committer.trust_positions()

    async def _pause_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    def _regulate(self) -> None:
        wanted = self._core.paused()
        self._source.set_paused(wanted, self._core.assigned)

    # Work

    def _pump(self) -> None:
        """Start whatever may start now, and be back when that may change by itself."""
        now = self._clock()
        while (item := self._core.start(now)) is not None:
            task = asyncio.create_task(self._work_on(item))
            self._tasks[task] = item
            task.add_done_callback(self._ended)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        due = self._core.next_wake(now)
        if due is not None:
            self._wake = asyncio.get_running_loop().call_later(max(0.0, due - now), self._pump)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bug = error
        self._pump()

    async def _work_on(self, item: Item | None) -> None:
        """Work on a record and, if it succeeded, on the next that may start.

        That saves a task and two turns of the event loop. A record that ended otherwise may have waited for nothing:
        then others have their turn first.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        while item is not None:
            self._tasks[task] = item
            item = self._core.start(self._clock()) if await self._work(item) else None

    async def _work(self, item: Item) -> bool:
        """True if the record succeeded."""
        if item.dead is None:
            answered = evidence.collect()
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
                self.name,
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
                    self._notify(BreakerMoved(self.name, upstream, was, opened=False))
                if now is not None:
                    self._notify(BreakerMoved(self.name, upstream, now, opened=True, error=error))

    # Assignments

    def _begin_assignment(self) -> None:
        """Move the epoch if a new assignment has begun: its records can arrive before the listener is called."""
        if not self._core.assigned and not self._closing.is_set():
            self._core.assign(self._source.assignment())
            self._source.forget_pauses()

    async def assigned(self) -> None:
        """The listener's word that partitions came; the epoch moves before anything is waited for."""
        self._begin_assignment()
        self._joined, self._rebalancing = True, False
        self._committer.resume()
        self._notify(Rebalanced(self.name, RebalanceKind.ASSIGNED, len(self._core.assigned)))
        self._pump()

    async def revoked(self) -> None:
        """The listener's word that partitions go: drain, commit, cancel, purge. Nothing to drain after an eviction."""
        started, held = self._clock(), len(self._core.assigned)
        self._rebalancing = True
        evicted = self._source.evicted()
        drained = await self._release(None if evicted else self._settings.drain_timeout)
        if held:
            kind = RebalanceKind.LOST if evicted else RebalanceKind.REVOKED
            self._notify(Rebalanced(self.name, kind, held, self._clock() - started, drained))

    async def _release(self, drain_timeout: float | None) -> bool:
        """Start nothing new, let what is in flight end, commit, and purge what is left. True if all of it ended.

        One at a time: a revoke in the middle of a stop waits for it, so no commit outlives either.

        Args:
            drain_timeout: None when others hold the partitions already: nothing to wait for, and nothing to commit.
        """
        async with self._releasing:
            self._core.stop()
            drained = not self._tasks
            try:
                if self._tasks and drain_timeout is not None:
                    _, pending = await asyncio.wait(set(self._tasks), timeout=drain_timeout)
                    drained = not pending
                await self._committer.halt()
                if drain_timeout is not None:
                    await self._committer.commit()
            finally:
                self._core.revoke()
                await self._cancel_jobs()
            return drained

    async def _cancel_jobs(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)

    # Time

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if not self._rebalancing:
                await self._committer.tick()

    def state(self) -> LaneState:
        """How the lane stands; to be called on the event loop only."""
        core, now = self._core, self._clock()
        oldest = core.oldest()
        return LaneState(
            lane=self.name,
            in_flight=core.keys.running,
            buffered=core.buffered(),
            parked=core.keys.parked(),
            breakers={u: b.reason for u, b in core.breakers.items() if b.reason is not None},
            paused=by_topic(core.paused()),
            assigned=by_topic(core.assigned),
            last_poll=self._last_poll,
            last_commit=self._committer.last_commit,
            oldest_uncommitted=max(0.0, self._wall() - oldest) if oldest else 0.0,
            oldest_in_flight=max((now - item.started for item in self._tasks.values()), default=0.0),
            joined=self._joined,
            rebalancing=self._rebalancing,
        )

    def stuck_stack(self) -> str:
        """Where the task hangs that has been in flight for longest; "" if none is."""
        if not self._tasks:
            return ""
        task = min(self._tasks, key=lambda each: self._tasks[each].started)
        lines: list[str] = []
        awaited: object = task.get_coro()
        # `Task.get_stack` knows only the first frame.
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            awaited = getattr(awaited, "cr_await", None)
        return "\n".join(lines)
