"""Which offset may be committed, for one partition of one assignment. Pure.

Only *delivered* records count: transaction markers and compaction leave holes that are never delivered, so "the next
offset" is not "this offset + 1". What may be committed is the offset of the first delivered record that is not done,
and, when all are done, the position that the consumer has reached.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Completed:
    """What a tracker knows to be done, kept over a rebalance in which the partition stays with us.

    Attributes:
        ranges: from and up to, not including: all that is delivered between is done.
        ahead: single offsets that are done too.
    """

    ranges: tuple[tuple[int, int], ...]
    ahead: frozenset[int]

    def __contains__(self, offset: int) -> bool:
        return offset in self.ahead or any(first <= offset < end for first, end in self.ranges)


class OffsetTracker:
    """The delivered and the done offsets of a partition.

    Args:
        position: the offset that the next delivered record must have at least; also what is committed so far.
        completed: what a tracker of the assignment before this one knew to be done.
    """

    __slots__ = ("_ahead", "_completed", "_pending", "_position", "_start", "committed")

    def __init__(self, position: int, completed: Completed | None = None) -> None:
        self._start = position
        self._position = position
        self._completed = completed
        self._pending: deque[int] = deque()
        self._ahead: set[int] = set()
        self.committed = position

    def deliver(self, offsets: Iterable[int], position: int) -> list[int]:
        """Take note of delivered records, in order, and of the consumer's position after them.

        Returns:
            the offsets to be worked on: those that are not known to be done already.
        """
        fresh = []
        for offset in offsets:
            if offset < self._position:
                continue  # delivered before in this assignment, after a seek
            self._pending.append(offset)
            if self._completed is not None and offset in self._completed:
                self._ahead.add(offset)
            else:
                fresh.append(offset)
            self._position = offset + 1
        self._position = max(self._position, position)
        self._settle()
        return fresh

    def advance(self, position: int) -> None:
        """The consumer has moved on without delivering anything (a marker, a compacted tail)."""
        self._position = max(self._position, position)

    def done(self, offset: int) -> None:
        """A delivered record has had its effect, or stands safely as a dead letter."""
        self._ahead.add(offset)
        self._settle()

    def _settle(self) -> None:
        while self._pending and self._pending[0] in self._ahead:
            self._ahead.discard(self._pending.popleft())

    @property
    def position(self) -> int:
        """Where the consumer must read next; after a failed poll it is put back here."""
        return self._position

    @property
    def committable(self) -> int:
        """What may be committed: everything delivered below it is done."""
        return self._pending[0] if self._pending else self._position

    @property
    def span(self) -> int:
        """How many delivered records lie at or above the first that is not done."""
        return len(self._pending)

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return self.committable > self.committed

    def completed(self) -> Completed | None:
        """What is done, for the next assignment; None if nothing is that is not committed too.

        What the assignment before knew to be done and this one was not delivered again stays known.
        """
        ranges, ahead = [(self._start, self.committable)], set(self._ahead)
        if self._completed is not None:
            ranges += [(max(first, self._position), end) for first, end in self._completed.ranges]
            ahead |= {offset for offset in self._completed.ahead if offset >= self._position}
        ranges = [(first, end) for first, end in ranges if end > max(first, self.committed)]
        if not ranges and not ahead:
            return None
        return Completed(tuple(ranges), frozenset(ahead))
