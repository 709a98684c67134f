"""A lane: one consumer, one group, one set of handlers, one in-flight limit. Lanes share nothing.

    poll → deliver → start → job → finish → commit
                       ▲        └→ park, or write a dead letter first
                       └─ when due

`LaneScheduler` decides, `JobExecutor` runs the jobs, `Committer` commits; `Lane` polls and follows the group's
rebalances.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from consumer.stream.committer import Committer
from consumer.stream.dead_letter_writer import Write
from consumer.stream.executor import JobExecutor, JobFactory, LaneSettings
from consumer.stream.hooks import Hook, LaneState, PollFailed, Rebalanced, RebalanceKind, by_topic
from consumer.stream.records import Partition
from consumer.stream.scheduler import LaneScheduler
from consumer.stream.source import Batch, Source, SourceClosed, ask_each

POLL_TIMEOUT = 0.2
POLL_RECORDS = 500
TICK = 1.0
REWIND_TIMEOUT = 5.0
POLL_BACKOFF = 1.0
JOIN_BACKOFF = 2.0


def steady_clock() -> Callable[[], float]:
    """A clock of seconds since the epoch that ignores later adjustments of the machine's time, so that timers neither
    stretch nor shrink.
    """
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class Lane:
    """Runs one lane until it is stopped.

    Args:
        clock: schedules retries and probes; None for a `steady_clock`.
        wall: the machine's time, to compare with the timestamps of others.
    """

    def __init__(
        self,
        settings: LaneSettings,
        scheduler: LaneScheduler,
        source: Source,
        make_job: JobFactory,
        write: Write,
        hook: Hook,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._scheduler = scheduler
        self._source = source
        self._hook = hook
        self._clock = clock or steady_clock()
        self._wall = wall
        self._committer = Committer(self.name, scheduler, source, hook, self._clock, wall)
        self._executor = JobExecutor(settings, scheduler, make_job, write, hook, self._clock, wall)
        self._closing = asyncio.Event()
        self._left = asyncio.Event()
        self._rewind_due = asyncio.Event()
        self._releasing = asyncio.Lock()
        self._joined = False
        self._rebalancing = True
        self._last_poll = wall()

    async def run(self) -> None:
        """Consume until `stop`.

        Raises:
            Exception: a bug of the engine.
        """
        loops: dict[str, Coroutine[Any, Any, object]] = {
            "poll": self._poll_loop(),
            "tick": self._tick_loop(),
            "rewind": self._rewind_loop(),
            "leave": self._left.wait(),  # during a rebalance `getmany` waits for what never comes after `stop`
            "fail": self._executor.failed.wait(),
        }
        tasks = {asyncio.create_task(loop, name=f"{self.name}-{name}") for name, loop in loops.items()}
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
            if self._executor.fatal_error is not None:
                raise self._executor.fatal_error  # going on could lose a record
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _join(self) -> None:
        """Start the consumer; retry while Kafka is not reachable."""
        while not self._closing.is_set():
            try:
                await self._source.start(self)
            except Exception as error:  # noqa: BLE001 - Kafka may not be up yet; `check` finds lasting mistakes
                self._hook(PollFailed(self.name, f"Kafka is not reachable yet: {type(error).__name__}: {error}"))
                await self._pause_for(JOIN_BACKOFF)
            else:
                return

    async def stop(self, deadline: float) -> None:
        """Drain, commit and leave the group within `deadline` seconds; then return, whatever still hangs."""
        self._closing.set()
        try:
            async with asyncio.timeout(deadline):
                await self._release(min(self._settings.drain_timeout, deadline / 2))
                await self._source.stop()
        except TimeoutError:
            self._hook(PollFailed(self.name, f"the consumer did not stop within {deadline:g} s"))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            self._hook(PollFailed(self.name, "the consumer did not stop well: cancelled from inside"))
        finally:
            self._left.set()

    # Records in

    async def _poll_loop(self) -> None:
        await self._join()
        while not self._closing.is_set():
            try:
                batches = await self._source.poll(POLL_TIMEOUT, POLL_RECORDS)
            except SourceClosed:
                return
            except Exception as error:  # noqa: BLE001 - seek back to what was not delivered, and go on
                self._doubt_positions()
                self._hook(PollFailed(self.name, f"{type(error).__name__}: {error}"))
                await self._pause_for(POLL_BACKOFF)
                continue
            self._last_poll = self._wall()
            if batches:
                self._begin_assignment()
                await self._deliver(batches)
            self._source.set_paused(self._scheduler.paused(), self._scheduler.assigned)
            self._executor.start_ready()

    async def _deliver(self, batches: list[Batch]) -> None:
        went_back = []
        for batch in batches:
            if self._scheduler.is_behind(batch.partition, batch.records):
                went_back.append(batch)
            else:
                self._scheduler.deliver(batch.partition, batch.records, batch.position)
        if went_back:
            await self._reset_truncated(went_back)

    async def _reset_truncated(self, went_back: list[Batch]) -> None:
        """The consumer went back to the start of partitions. If their logs were truncated, known offsets now stand for
        other records: read them from the new start, and the other partitions from their committed offsets. If their
        ends show that they were not, read on where the consumer left off.
        """
        epoch = self._scheduler.epoch
        ends = await ask_each(self._source.end_of, [batch.partition for batch in went_back], REWIND_TIMEOUT)
        if epoch != self._scheduler.epoch:
            return
        truncated: dict[Partition, int] = {}
        for partition, records, _ in went_back:
            first, expected = records[0].offset, self._scheduler.trackers[partition].position
            text = f"the consumer went back from {expected} to {first}: reading on from {expected}"
            if partition in ends and ends[partition] < expected:
                truncated[partition] = first
                text = f"the log was truncated from {expected} to {ends[partition]}: reading again from {first}"
            self._hook(PollFailed(self.name, f"{partition.topic}[{partition.number}]: {text}"))
        if truncated:
            self._scheduler.reset(truncated)
        self._doubt_positions()
        if truncated:
            await self._executor.cancel()

    def _doubt_positions(self) -> None:
        self._scheduler.poll_failed()
        self._rewind_due.set()

    async def _rewind_loop(self) -> None:
        """After a failed poll, rewind each partition by itself: one that has no leader holds up no other."""
        while True:
            await self._rewind_due.wait()
            self._rewind_due.clear()
            while in_doubt := self._scheduler.in_doubt():
                epoch = self._scheduler.epoch
                await ask_each(self._rewind, in_doubt, REWIND_TIMEOUT)
                if epoch == self._scheduler.epoch and (left := self._scheduler.in_doubt() & in_doubt):
                    names = ", ".join(f"{topic}[{number}]" for topic, number in sorted(left))
                    self._hook(PollFailed(self.name, f"no position of {names}: reading the other partitions"))
                    await asyncio.sleep(POLL_BACKOFF)

    async def _rewind(self, partition: Partition) -> None:
        """Seek back to what a failed poll lost: records that it had already taken of this partition.

        A partition that lost nothing stays where it is: a seek discards what is prefetched, and one unreadable
        partition would keep all others from being read.
        """
        epoch, position, start = self._scheduler.epoch, None, 0
        if partition in self._scheduler.trackers:
            position = await self._source.position(partition)
        else:
            committed, beginning = await self._source.start_of(partition)
            start = beginning if committed is None else max(committed, beginning)
        target = self._scheduler.rewind(epoch, partition, position, start)
        if target is not None:
            self._source.seek(partition, target)

    async def _pause_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    # Assignments

    def _begin_assignment(self) -> None:
        """Move the epoch if a new assignment has begun: its records can arrive before the listener is called."""
        if not self._scheduler.assigned and not self._closing.is_set():
            self._scheduler.assign(self._source.assignment())
            self._source.forget_pauses()
            self._rewind_due.set()

    async def assigned(self) -> None:
        """The listener's call after an assignment. The epoch moves before the first await."""
        self._begin_assignment()
        self._joined, self._rebalancing = True, False
        self._committer.resume()
        self._hook(Rebalanced(self.name, RebalanceKind.ASSIGNED, len(self._scheduler.assigned)))
        self._executor.start_ready()

    async def revoked(self) -> None:
        """The listener's call before a revoke: drain, commit, cancel, purge. After an eviction there is no drain."""
        started, partitions = self._clock(), len(self._scheduler.assigned)
        self._rebalancing = True
        evicted = self._source.evicted()
        drained = await self._release(None if evicted else self._settings.drain_timeout)
        if partitions:
            kind = RebalanceKind.LOST if evicted else RebalanceKind.REVOKED
            self._hook(Rebalanced(self.name, kind, partitions, self._clock() - started, drained))

    async def _release(self, drain_timeout: float | None) -> bool:
        """Start nothing new, drain, commit, and purge the rest. True if all records in flight ended.

        One call at a time: a revoke during a stop waits for it, so that no commit outlives either.

        Args:
            drain_timeout: None if others already own the partitions: then there is neither a drain nor a commit.
        """
        async with self._releasing:
            self._scheduler.stop()
            drained = not self._executor.tasks
            try:
                if drain_timeout is not None:
                    drained = await self._executor.drain(drain_timeout)
                await self._committer.halt()
                if drain_timeout is not None:
                    await self._committer.commit()
            finally:
                self._scheduler.revoke()
                await self._executor.cancel()
            return drained

    # Time

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if not self._rebalancing:
                await self._committer.tick()

    def state(self) -> LaneState:
        """A snapshot of the lane. Call it on the event loop only."""
        scheduler, now = self._scheduler, self._clock()
        oldest = scheduler.oldest()
        return LaneState(
            lane=self.name,
            in_flight=scheduler.keys.running,
            buffered=scheduler.buffered(),
            parked=scheduler.keys.parked(),
            breakers={u: b.reason for u, b in scheduler.breakers.items() if b.reason is not None},
            paused=by_topic(scheduler.paused()),
            assigned=by_topic(scheduler.assigned),
            last_poll=self._last_poll,
            last_commit=self._committer.last_commit,
            oldest_uncommitted=max(0.0, self._wall() - oldest) if oldest else 0.0,
            oldest_in_flight=self._executor.longest(now),
            joined=self._joined,
            rebalancing=self._rebalancing,
            waiting=scheduler.waiting(self._wall()),
        )

    def longest_stack(self) -> str:
        """The stack of the longest-running attempt; "" if none runs."""
        return self._executor.longest_stack()
