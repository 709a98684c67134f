"""When to stop reading a partition, and when to go on. Pure.

Measured in delivered records that are not done, in their bytes, and in the span that cannot be committed yet; with
hysteresis, because a pause throws the consumer's prefetched records away.
"""

from dataclasses import dataclass, replace

FULL_SHARES = 16
"""So many partitions may hold all that their limits allow; more share what these would hold."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A partition is paused at any of these, and resumed when below half of all."""

    records: int = 1_000
    bytes: int = 4_000_000
    span: int = 10_000

    def share(self, partitions: int) -> "Limits":
        """The limits of each of so many partitions, so that a lane's memory does not grow with their number."""
        if partitions <= FULL_SHARES:
            return self
        records, size = (limit * FULL_SHARES // partitions for limit in (self.records, self.bytes))
        return replace(self, records=max(1, records), bytes=max(1, size))


class Pressure:
    """The load of one partition."""

    __slots__ = ("_limits", "bytes", "paused", "records")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.records = 0
        self.bytes = 0
        self.paused = False

    def add(self, size: int) -> None:
        """A record was delivered."""
        self.records += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """A record is done."""
        self.records -= 1
        self.bytes -= size

    def update(self, span: int) -> bool:
        """Whether the partition must be paused now."""
        limits = self._limits
        if self.paused:
            self.paused = self.records * 2 > limits.records or self.bytes * 2 > limits.bytes or span * 2 > limits.span
        else:
            self.paused = self.records >= limits.records or self.bytes >= limits.bytes or span >= limits.span
        return self.paused
