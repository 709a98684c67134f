"""When and how offsets are committed, and what an uncertain commit means.

aiokafka's `commit` retries for ever and rereads the group's generation each time, so that a commit from before a revoke
could land after the new owner's and rewind it. Hence every commit has a time limit, none runs on beyond a revoke, and
one that was cancelled or timed out is unknown, not failed: it may have arrived.
"""

import asyncio
from collections.abc import Callable

from consumer.stream.core import LaneCore
from consumer.stream.records import Partition
from consumer.stream.signals import CommitEnded, CommitResult, Notify, Overtaken
from consumer.stream.source import Source

COMMIT_TIMEOUT = 5.0
POSITION_TIMEOUT = 2.0
START_CHECK_INTERVAL = 60.0


class Committer:
    """Commits what a lane's core says may be committed."""

    def __init__(
        self,
        lane: str,
        core: LaneCore,
        source: Source,
        notify: Notify,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._lane = lane
        self._core = core
        self._source = source
        self._notify = notify
        self._clock = clock
        self._wall = wall
        self._running: asyncio.Task[None] | None = None
        self._halted = True
        self._doubts = 0
        self.trusted = True
        self._checked_epoch = -1
        self._next_check = 0.0
        self._starts: dict[Partition, int] = {}
        self.last_commit = 0.0

    def resume(self) -> None:
        """A new assignment has begun."""
        self._halted = False

    async def halt(self) -> None:
        """End what runs: no commit's retries outlive this."""
        self._halted = True
        running = self._running
        if running is not None and not running.done():
            running.cancel()
            await asyncio.wait({running})

    def distrust_positions(self) -> None:
        """A poll has failed: positions may have moved over records that were never delivered."""
        self.trusted = False
        self._doubts += 1

    def trust_positions(self) -> None:
        """Positions are put right again."""
        self.trusted = True

    async def tick(self) -> None:
        """Commit what is due, unless halted meanwhile."""
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
        offsets, epoch = self._core.commits(), self._core.epoch
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT):
                await self._source.commit(offsets)
        except TimeoutError:
            self._notify(CommitEnded(self._lane, CommitResult.UNKNOWN, len(offsets), "timed out"))
        except asyncio.CancelledError:
            self._notify(CommitEnded(self._lane, CommitResult.UNKNOWN, len(offsets), "cancelled by a rebalance"))
            raise
        except Exception as error:  # noqa: BLE001 - the records are done; they stay uncommitted until the next try
            self._notify(CommitEnded(self._lane, CommitResult.FAILED, len(offsets), f"{type(error).__name__}: {error}"))
        else:
            self._core.committed(epoch, offsets)
            self.last_commit = self._wall()
            self._notify(CommitEnded(self._lane, CommitResult.COMMITTED, len(offsets)))

    async def _follow_positions(self) -> None:
        """Take note of positions that moved without a delivery (markers, a compacted tail), so that lag reaches 0."""
        epoch, doubts = self._core.epoch, self._doubts
        try:
            async with asyncio.timeout(POSITION_TIMEOUT):
                if self._checked_epoch != epoch or self._clock() >= self._next_check:
                    await self._check_starts(epoch)
                if not self.trusted:
                    return
                idle = [p for p, tracker in self._core.trackers.items() if not tracker.span]
                positions = {partition: await self._source.position(partition) for partition in idle}
        except Exception:  # noqa: BLE001 - a rebalance or an outage: the next tick looks again
            return
        if doubts == self._doubts and epoch == self._core.epoch:
            for partition, position in positions.items():
                self._core.trackers[partition].advance(position)

    async def _check_starts(self, epoch: int) -> None:
        """When an assignment begins, and once a minute: whether retention has overtaken what we have not read.

        At the beginning this also tells where each partition was taken up. Later it can only happen to a partition that
        is paused for as long as its records are kept: an upstream that is down for days.
        """
        starts = await self._source.starts(self._core.assigned)
        if epoch != self._core.epoch:
            return
        first = self._checked_epoch != epoch
        for partition, (committed, beginning) in starts.items():
            resumed = beginning if committed is None else committed
            tracker = self._core.locate(partition, max(resumed, beginning))
            reached = resumed if first else max(tracker.position, self._starts.get(partition, 0))
            if reached < beginning:
                self._notify(Overtaken(self._lane, partition.topic, partition.number, beginning - reached))
            self._starts[partition] = beginning
        self._checked_epoch, self._next_check = epoch, self._clock() + START_CHECK_INTERVAL
