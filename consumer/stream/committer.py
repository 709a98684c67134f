"""When and how offsets are committed, and what an uncertain commit means.

aiokafka's `commit` retries for ever and rereads the group's generation each time, so a commit from before a revoke
could land after the new owner's and rewind it. Every commit therefore has a timeout, and none outlives a revoke. A
commit that was cancelled or timed out is unknown, not failed: it may have arrived.
"""

import asyncio
from collections.abc import Callable

from consumer.stream.hooks import CommitFinished, CommitResult, Hook, RecordsExpired
from consumer.stream.records import Partition
from consumer.stream.scheduler import LaneScheduler
from consumer.stream.source import Source, ask_each

COMMIT_TIMEOUT = 5.0
POSITION_TIMEOUT = 2.0
START_CHECK_INTERVAL = 60.0
START_RETRY_INTERVAL = 5.0


class Committer:
    """Commits the offsets that a lane's scheduler allows.

    Attributes:
        last_commit: seconds since the epoch, 0 for never.
    """

    def __init__(
        self,
        lane: str,
        scheduler: LaneScheduler,
        source: Source,
        hook: Hook,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._lane = lane
        self._scheduler = scheduler
        self._source = source
        self._hook = hook
        self._clock = clock
        self._wall = wall
        self._running: asyncio.Task[None] | None = None
        self._halted = True
        self._checked_epoch = -1
        self._checked: set[Partition] = set()
        self._next_check = 0.0
        self._starts: dict[Partition, int] = {}
        self.last_commit = 0.0

    def resume(self) -> None:
        """Allow ticks: a new assignment has begun."""
        self._halted = False

    async def halt(self) -> None:
        """Cancel the running tick, so that no commit's retries outlive this call, and allow no other."""
        self._halted = True
        running = self._running
        if running is not None and not running.done():
            running.cancel()
            await asyncio.wait({running})

    async def tick(self) -> None:
        """Commit, unless halted."""
        if self._halted:
            return
        running = self._running = asyncio.create_task(self._tick())
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            raise
        if not running.cancelled():
            running.result()

    async def _tick(self) -> None:
        await self._follow_positions()
        await self.commit()

    async def commit(self) -> None:
        """Commit the completed prefix of every partition that has a new one."""
        offsets, epoch = self._scheduler.committable(), self._scheduler.epoch
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT):
                await self._source.commit(offsets)
        except TimeoutError:
            self._hook(CommitFinished(self._lane, CommitResult.UNKNOWN, len(offsets), "timed out"))
        except asyncio.CancelledError:
            self._hook(CommitFinished(self._lane, CommitResult.UNKNOWN, len(offsets), "cancelled by a rebalance"))
            raise
        except Exception as error:  # noqa: BLE001 - the records are done; the next tick commits them
            self._hook(
                CommitFinished(self._lane, CommitResult.FAILED, len(offsets), f"{type(error).__name__}: {error}")
            )
        else:
            self._scheduler.mark_committed(epoch, offsets)
            self.last_commit = self._wall()
            self._hook(CommitFinished(self._lane, CommitResult.COMMITTED, len(offsets)))

    async def _follow_positions(self) -> None:
        """Note positions that moved without a delivery (markers, a compacted tail), so that lag reaches 0."""
        scheduler = self._scheduler
        epoch, failed_polls = scheduler.epoch, scheduler.failed_polls
        if self._checked_epoch != epoch or self._clock() >= self._next_check:
            await self._check_starts(epoch)
        idle = [p for p, tracker in scheduler.trackers.items() if not tracker.pending_count]
        positions = await ask_each(self._source.position, set(idle) - scheduler.in_doubt(), POSITION_TIMEOUT)
        if failed_polls == scheduler.failed_polls and epoch == scheduler.epoch:
            for partition, position in positions.items():
                scheduler.trackers[partition].advance(position)

    async def _check_starts(self, epoch: int) -> None:
        """Report records that retention deleted before they were read: when an assignment begins, and once a minute.

        At the beginning this also gives each partition its tracker. Later, records can only expire in a partition that
        stays paused for as long as the topic keeps its records: when an upstream is down for days.
        """
        assigned = self._scheduler.assigned
        starts = await ask_each(self._source.start_of, assigned, POSITION_TIMEOUT)
        if epoch != self._scheduler.epoch:
            return
        if self._checked_epoch != epoch:
            self._checked = set()
        for partition, (committed, beginning) in starts.items():
            resumed = beginning if committed is None else committed
            tracker = self._scheduler.locate(partition, max(resumed, beginning))
            reached = max(
                tracker.position if partition in self._checked else resumed, self._starts.get(partition, 0)
            )  # what expired before the last check is reported already
            if reached < beginning:
                self._hook(RecordsExpired(self._lane, partition.topic, partition.number, beginning - reached))
                tracker.committed = min(tracker.committed, resumed)  # commit the new start: others need not report it
            self._starts[partition] = beginning
            self._checked.add(partition)
        all_answered = starts.keys() == assigned
        interval = START_CHECK_INTERVAL if all_answered else START_RETRY_INTERVAL
        self._checked_epoch, self._next_check = epoch, self._clock() + interval
