"""When a lane must stop asking an upstream. Pure.

A breaker opens on `UpstreamDown`, or when three different keys fail with no success of that upstream between. While it
is open the lane starts nothing but one probe at a time. Any good answer closes it, and so does a `Permanent`: the
upstream is there and has judged. Apart from that, a run of 20 refusals slows the lane to one record per 2 s, so that a
mistake of ours, or of the upstream, does not turn a whole topic into dead letters.
"""

from consumer.errors import DownKind, Upstream
from consumer.stream.items import Key
from consumer.stream.signals import BreakerReason

KEYS_TO_OPEN = 3
REFUSALS_TO_SLOW = 20
SLOWED_INTERVAL = 2.0
FIRST_PROBE, LAST_PROBE = 0.25, 2.0


class Breaker:
    """The breaker of one upstream in one lane.

    Attributes:
        reason: why the lane is held back; None if it is not.
        failing: the keys that failed since the upstream last gave a good answer.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.reason: BreakerReason | None = None
        self.failing: set[Key] = set()
        self._refusals = 0
        self._probes = 0
        self._next_start = 0.0

    @property
    def open(self) -> bool:
        """Whether nothing but a probe may start."""
        return self.reason is not None and self.reason is not BreakerReason.SLOWED

    def down(self, kind: DownKind, now: float) -> None:
        """The upstream serves nobody, or not us."""
        self._open(BreakerReason(kind.value), now)

    def failed(self, key: Key, now: float) -> bool:
        """A key failed, and the record is not itself to blame. True if that opened the breaker."""
        self.failing.add(key)
        if len(self.failing) < KEYS_TO_OPEN or self.open:
            return False
        self._open(BreakerReason.FAILING, now)
        return True

    def _open(self, reason: BreakerReason, now: float) -> None:
        if not self.open:
            self._probes = 0
            self._next_start = now + FIRST_PROBE
        self.reason = reason

    def answered(self) -> None:
        """The upstream has given a good answer."""
        self.failing.clear()
        if self.open:
            self.reason = None

    def succeeded(self, *, helped: bool) -> None:
        """A whole record succeeded: not everything is refused. Only one that this upstream `helped` ends the run."""
        if helped:
            self._refusals = 0
        if self.reason is BreakerReason.SLOWED:
            self.reason = None

    def refused(self, now: float) -> None:
        """The upstream refused a record for good (`Permanent`)."""
        self.answered()
        self._refusals += 1
        if self._refusals >= REFUSALS_TO_SLOW and self.reason is None:
            self.reason = BreakerReason.SLOWED
            self._next_start = now + SLOWED_INTERVAL

    def started(self, now: float) -> None:
        """Something was started while the breaker was open or slowed: when may the next?"""
        if self.open:
            self._next_start = now + min(LAST_PROBE, FIRST_PROBE * 2**self._probes)
            self._probes = min(self._probes + 1, 10)
        elif self.reason is BreakerReason.SLOWED:
            self._next_start = now + SLOWED_INTERVAL

    def unproven(self) -> None:
        """What was started last proved nothing, and harmed nothing: the next may start at once."""
        self._next_start = 0.0

    def wait_until(self) -> float:
        """The earliest time of the next start; 0 if the breaker does not mind."""
        return self._next_start if self.reason is not None else 0.0
