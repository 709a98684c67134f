"""When and how offsets are committed, and what an uncertain commit means.

aiokafka's `commit` retries for ever and rereads the group's generation each time, so that a commit from before a revoke
could land after the new owner's and rewind it. Hence every commit has a time limit, none runs on beyond a revoke, and
one that was cancelled or timed out is unknown, not failed: it may have arrived.
"""

import asyncio
from collections.abc import Callable

from consumer.stream.core import LaneCore
from consumer.stream.signals import CommitEnded, CommitResult, Notify, Overtaken
from consumer.stream.source import Source

COMMIT_TIMEOUT = 5.0
POSITION_TIMEOUT = 2.0


class Committer:
    """Commits what a lane's core says may be committed."""

    def __init__(self, lane: str, core: LaneCore, source: Source, notify: Notify, clock: Callable[[], float]) -> None:
        self._lane = lane
        self._core = core
        self._source = source
        self._notify = notify
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._halted = True
        self._trusted = True
        self._checked_epoch = -1
        self.last_commit = 0.0

    def resume(self) -> None:
        """A new assignment has begun."""
        self._halted = False

    async def halt(self) -> None:
        """End what runs: no commit's retries outlive this."""
        self._halted = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def distrust_positions(self) -> None:
        """A poll has failed: positions may have moved over records that were never delivered."""
        self._trusted = False

    def trust_positions(self) -> None:
        """Positions are put right again."""
        self._trusted = True

    async def tick(self) -> None:
        """Commit what is due, unless halted meanwhile."""
        if self._halted:
            return
        self._running = asyncio.create_task(self._tick())
        try:
            await asyncio.wait({self._running})
            if not self._running.cancelled():
                self._running.result()
        finally:
            self._running = None

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
            self.last_commit = self._clock()
            self._notify(CommitEnded(self._lane, CommitResult.COMMITTED, len(offsets)))

    async def _follow_positions(self) -> None:
        """Take note of positions that moved without a delivery (markers, a compacted tail), so that lag reaches 0."""
        epoch = self._core.epoch
        try:
            async with asyncio.timeout(POSITION_TIMEOUT):
                if self._checked_epoch != epoch:
                    await self._check_start(epoch)
                idle = [p for p, tracker in self._core.trackers.items() if not tracker.span]
                positions = {partition: await self._source.position(partition) for partition in idle}
        except Exception as error:  # noqa: BLE001 - a rebalance or an outage: the next tick looks again
            del error
            return
        if self._trusted and epoch == self._core.epoch:
            for partition, position in positions.items():
                tracker = self._core.trackers[partition]
                if not tracker.span:
                    tracker.advance(position)

    async def _check_start(self, epoch: int) -> None:
        """Once per assignment: where each partition was taken up, and whether retention had overtaken that."""
        starts = await self._source.starts(self._core.assigned)
        if epoch != self._core.epoch:
            return
        self._checked_epoch = epoch
        for partition, (committed, beginning) in starts.items():
            if committed is not None and committed < beginning:
                lost = Overtaken(self._lane, partition.topic, partition.number, beginning - committed)
                self._notify(lost)
            self._core.locate(partition, beginning if committed is None else max(committed, beginning))
