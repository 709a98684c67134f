"""Ordering by key: one record at a time per key, first in, first out; keys take turns. Pure.

A key is *ready* (its head may start), *running* (its head has started), or *parked* (its head waits for a time).
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from itertools import count

from consumer.errors import Upstream
from consumer.stream.hooks import ParkReason
from consumer.stream.records import Key, WorkItem


class Parked:
    """Until when and why a key is parked; `upstream` is the one whose failure parked it."""

    __slots__ = ("due", "reason", "upstream")

    def __init__(self, due: float, reason: ParkReason, upstream: Upstream | None) -> None:
        self.due = due
        self.reason = reason
        self.upstream = upstream


class KeyQueues:
    """The unfinished records, by key."""

    def __init__(self) -> None:
        self._queues: dict[Key, deque[WorkItem]] = {}
        self._ready: deque[Key] = deque()
        self._running: set[Key] = set()
        self._parked: dict[Key, Parked] = {}
        self._due_times: list[tuple[float, int, Key, Parked]] = []
        self._counter = count()

    def add(self, item: WorkItem) -> None:
        """Append a record to the queue of its key."""
        queue = self._queues.get(item.key)
        if queue is None:
            self._queues[item.key] = deque((item,))
            self._ready.append(item.key)
        else:
            queue.append(item)

    def start(self) -> WorkItem | None:
        """Take the head of the next ready key; its key is running until `finish`, `retry` or `park`."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._running.add(key)
        return self._queues[key][0]

    def finish(self, key: Key) -> None:
        """Remove the running head; the next record of its key is ready."""
        self._running.discard(key)
        queue = self._queues[key]
        queue.popleft()
        if queue:
            self._ready.append(key)
        else:
            del self._queues[key]

    def retry(self, key: Key) -> None:
        """Queue the running head to start again at its turn."""
        self._running.discard(key)
        self._ready.append(key)

    def park(self, key: Key, due: float, reason: ParkReason, upstream: Upstream | None = None) -> None:
        """Hold the running head until `due`; its slot is free meanwhile."""
        self._running.discard(key)
        parked = Parked(due, reason, upstream)
        self._parked[key] = parked
        heapq.heappush(self._due_times, (due, next(self._counter), key, parked))

    def unpark_due(self, now: float) -> None:
        """Make the keys ready whose time has come."""
        while self._due_times and (self._due_times[0][0] <= now or self._stale(self._due_times[0])):
            _, _, key, parked = heapq.heappop(self._due_times)
            if self._parked.get(key) is parked:
                del self._parked[key]
                self._ready.append(key)

    def unpark_failed(self, upstream: Upstream) -> list[WorkItem]:
        """Make the keys ready that an upstream's failure parked: its breaker now decides when they start.

        Records exempt from the breaker stay parked.

        Returns:
            the heads of the keys made ready.
        """
        heads = []
        for key, parked in list(self._parked.items()):
            head = self._queues[key][0]
            if parked.reason is ParkReason.RETRY and parked.upstream is upstream and not head.exempt_from_breaker:
                del self._parked[key]
                self._ready.append(key)
                heads.append(head)
        return heads

    def _stale(self, entry: tuple[float, int, Key, Parked]) -> bool:
        return self._parked.get(entry[2]) is not entry[3]

    def next_due(self) -> float | None:
        """When the next parked key is due; None if none is parked."""
        while self._due_times and self._stale(self._due_times[0]):
            heapq.heappop(self._due_times)
        return self._due_times[0][0] if self._due_times else None

    @property
    def ready(self) -> int:
        """How many keys could start now."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """How many keys are running: the records in flight."""
        return len(self._running)

    def parked(self) -> dict[ParkReason, int]:
        """How many keys are parked, by reason."""
        counts = dict.fromkeys(ParkReason, 0)
        for parked in list(self._parked.values()):
            counts[parked.reason] += 1
        return counts

    def queues(self) -> Collection[deque[WorkItem]]:
        """The unfinished records of each key."""
        return self._queues.values()

    def items(self) -> Iterator[WorkItem]:
        """Every unfinished record."""
        for queue in self._queues.values():
            yield from queue
