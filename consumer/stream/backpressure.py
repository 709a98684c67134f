"""When to pause a partition, and when to resume it. Pure.

The load of a partition is its unfinished records, their bytes, and its pending records, which cannot be committed yet.
Records that wait by design (`NotYet`) hardly count: a thousand waiting deletions must not hold up all others. Pauses
have hysteresis, because a pause discards the consumer's prefetched records.
"""

from dataclasses import dataclass, replace

WAITING_BYTES = 4
"""Working and waiting records together may hold this multiple of the limit of bytes."""
FULL_SHARES = 16
"""Up to this many partitions each get the full limits. More partitions share the total."""


@dataclass(frozen=True, slots=True)
class BackpressureLimits:
    """A partition is paused at any of these limits, and resumed below half of all."""

    records: int = 1_000
    bytes: int = 4_000_000
    pending: int = 10_000

    def share(self, partitions: int) -> "BackpressureLimits":
        """The limits per partition, so that a lane's memory does not grow with the number of partitions."""
        if partitions <= FULL_SHARES:
            return self
        records, size = (limit * FULL_SHARES // partitions for limit in (self.records, self.bytes))
        return replace(self, records=max(1, records), bytes=max(1, size))


class PartitionLoad:
    """The load of one partition."""

    __slots__ = ("_limits", "bytes", "paused", "records", "waiting_bytes", "waiting_records")

    def __init__(self, limits: BackpressureLimits) -> None:
        self._limits = limits
        self.records = 0
        self.bytes = 0
        self.waiting_records = 0
        self.waiting_bytes = 0
        self.paused = False

    def add(self, size: int) -> None:
        """Count a delivered record."""
        self.records += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """Count a finished record."""
        self.records -= 1
        self.bytes -= size

    def wait(self, size: int) -> None:
        """Count a record as waiting until `resume`."""
        self.waiting_records += 1
        self.waiting_bytes += size

    def resume(self, size: int) -> None:
        """Count a record as working again."""
        self.waiting_records -= 1
        self.waiting_bytes -= size

    def update(self, pending: int) -> bool:
        """Whether the partition must be paused now."""
        limits = self._limits
        load = max(
            (self.records - self.waiting_records) / limits.records,
            (self.bytes - self.waiting_bytes) / limits.bytes,
            self.bytes / (WAITING_BYTES * limits.bytes),
            pending / limits.pending,
        )
        self.paused = load > 0.5 if self.paused else load >= 1
        return self.paused
