"""Which offset of a partition may be committed. Pure.

Only *delivered* records count: transaction markers and compaction leave holes that are never delivered, so the next
offset is not always this offset + 1. The committable offset is that of the first delivered record that is not done,
or the consumer's position when all are done.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompletedOffsets:
    """Offsets known to be done, kept over a rebalance after which the partition is still ours.

    Attributes:
        ranges: pairs of first and end (exclusive); everything delivered between them is done.
        out_of_order: single offsets that are done too.
    """

    ranges: tuple[tuple[int, int], ...]
    out_of_order: frozenset[int]

    def __contains__(self, offset: int) -> bool:
        return offset in self.out_of_order or any(first <= offset < end for first, end in self.ranges)


class OffsetTracker:
    """The delivered and completed offsets of one partition in one assignment.

    Args:
        position: where reading begins; also the committed offset so far.
        completed: what the previous assignment's tracker knew to be done.
    """

    __slots__ = ("_completed", "_out_of_order", "_pending", "_position", "_start", "committed")

    def __init__(self, position: int, completed: CompletedOffsets | None = None) -> None:
        self._start = position
        self._position = position
        self._completed = completed
        self._pending: deque[int] = deque()
        self._out_of_order: set[int] = set()
        self.committed = position

    def deliver(self, offsets: Iterable[int], position: int) -> list[int]:
        """Note delivered records, in order, and the consumer's position after them.

        Returns:
            the offsets to process: those not known to be done already.
        """
        unprocessed = []
        for offset in offsets:
            if offset < self._position:
                continue  # delivered before in this assignment, after a seek
            self._pending.append(offset)
            if self._completed is not None and offset in self._completed:
                self._out_of_order.add(offset)
            else:
                unprocessed.append(offset)
            self._position = offset + 1
        self._position = max(self._position, position)
        self._pop_completed()
        return unprocessed

    def advance(self, position: int) -> None:
        """Note that the consumer moved on without a delivery (a transaction marker, a compacted tail)."""
        self._position = max(self._position, position)

    def done(self, offset: int) -> None:
        """Note that a delivered record took effect or became a dead letter."""
        self._out_of_order.add(offset)
        self._pop_completed()

    def _pop_completed(self) -> None:
        while self._pending and self._pending[0] in self._out_of_order:
            self._out_of_order.discard(self._pending.popleft())

    @property
    def position(self) -> int:
        """Where the consumer must read next. After a failed poll it is sought back here."""
        return self._position

    @property
    def committable(self) -> int:
        """The offset to commit: everything delivered below it is done."""
        return self._pending[0] if self._pending else self._position

    @property
    def pending_count(self) -> int:
        """How many delivered records lie at or above the first that is not done."""
        return len(self._pending)

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return self.committable > self.committed

    def completed(self) -> CompletedOffsets | None:
        """What the next assignment needs to know to be done; None if everything done is also committed.

        Completed offsets of the previous assignment that were not delivered again are kept.
        """
        ranges, out_of_order = [(self._start, self.committable)], set(self._out_of_order)
        if self._completed is not None:
            ranges += [(max(first, self._position), end) for first, end in self._completed.ranges]
            out_of_order |= {offset for offset in self._completed.out_of_order if offset >= self._position}
        ranges = [(first, end) for first, end in ranges if end > max(first, self.committed)]
        if not ranges and not out_of_order:
            return None
        return CompletedOffsets(tuple(ranges), frozenset(out_of_order))
