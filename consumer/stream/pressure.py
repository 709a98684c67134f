"""When to stop reading a partition, and when to go on. Pure.

Measured in delivered records that are not done, in their bytes, and in the span that cannot be committed yet; with
hysteresis, because a pause throws the consumer's prefetched records away.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """A partition is paused at any of these, and resumed when below half of all."""

    records: int = 1_000
    bytes: int = 4_000_000
    span: int = 10_000


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
