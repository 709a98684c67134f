"""A lane: one consumer, one group, one set of jobs, one in-flight limit. Nothing is shared between lanes.

    poll → deliver → start → job → finish → commit
                       ▲        └→ park, or dead letter first
                       └─ when its time comes

`LaneCore` decides. This shell polls, and lets go when the group says so; `Work` beside it starts and ends the jobs.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable

from consumer.stream.commits import Committer
from consumer.stream.core import LaneCore
from consumer.stream.dead_letters import Write
from consumer.stream.jobs import Resolve
from consumer.stream.records import Partition
from consumer.stream.signals import LaneState, Notify, PollFailed, Rebalanced, RebalanceKind
from consumer.stream.source import Batch, Source, SourceClosed
from consumer.stream.work import LaneSettings, Work

POLL_TIMEOUT = 0.2
POLL_RECORDS = 500
TICK = 1.0
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
        self._notify = notify
        self._clock = clock or steady_clock()
        self._wall = wall
        self._committer = Committer(self.name, core, source, notify, self._clock, wall)
        self._work = Work(settings, core, resolve, write, notify, self._clock, wall)
        self._closing = asyncio.Event()
        self._left = asyncio.Event()
        self._releasing = asyncio.Lock()
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
            if self._work.bug is not None:
                raise self._work.bug  # the engine's own: end, rather than go on with a record that nobody has
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
            self._work.pump()

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
        await self._work.cancel()

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
        self._work.pump()

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
            drained = not self._work.tasks
            try:
                if drain_timeout is not None:
                    drained = await self._work.drain(drain_timeout)
                await self._committer.halt()
                if drain_timeout is not None:
                    await self._committer.commit()
            finally:
                self._core.revoke()
                await self._work.cancel()
            return drained

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
            oldest_in_flight=self._work.longest(now),
            joined=self._joined,
            rebalancing=self._rebalancing,
        )

    def stuck_stack(self) -> str:
        """Where the task hangs that has been in flight for longest; "" if none is."""
        return self._work.stuck_stack()
