"""When a lane stops calling an upstream. Pure.

A breaker opens on `UpstreamDown`, or when three different keys fail with no success of that upstream between. While it
is open, the lane starts only one probe at a time. A good answer closes it, and so does a `Permanent`: the upstream is
up and has judged the record. Separately, 20 refusals in a row throttle the lane to one record per 2 s, so that a
misconfiguration does not turn a whole topic into dead letters.
"""

from consumer.errors import DownKind, Upstream
from consumer.stream.hooks import BreakerReason
from consumer.stream.records import Key

KEYS_TO_OPEN = 3
REFUSALS_TO_THROTTLE = 20
THROTTLED_INTERVAL = 2.0
FIRST_PROBE, LAST_PROBE = 0.25, 2.0


class Breaker:
    """The breaker of one upstream in one lane.

    Attributes:
        reason: why the lane is held back; None if it is not.
        failing: the keys that have failed since the upstream's last good answer.
        successes: how many records have succeeded with this upstream's help.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.reason: BreakerReason | None = None
        self.failing: set[Key] = set()
        self.successes = 0
        self._refusals = 0
        self._probes = 0
        self._next_start = 0.0

    @property
    def open(self) -> bool:
        """Whether only a probe may start."""
        return self.reason is not None and self.reason is not BreakerReason.THROTTLED

    def record_down(self, kind: DownKind, now: float) -> None:
        """The upstream is unreachable, or refuses our credentials: open."""
        self._open(BreakerReason(kind.value), now)

    def record_failure(self, key: Key, now: float) -> bool:
        """A key failed for a reason that may be the upstream's. True if that opened the breaker."""
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

    def record_answer(self) -> None:
        """The upstream gave a good answer: close."""
        self.failing.clear()
        if self.open:
            self.reason = None

    def record_success(self, *, helped: bool) -> None:
        """A whole record succeeded: stop throttling. Only one that this upstream `helped` ends the run of refusals."""
        if helped:
            self._refusals = 0
            self.successes += 1
        if self.reason is BreakerReason.THROTTLED:
            self.reason = None

    def record_refusal(self, now: float) -> None:
        """The upstream refused a record for good (`Permanent`)."""
        self.record_answer()
        self._refusals += 1
        if self._refusals >= REFUSALS_TO_THROTTLE and self.reason is None:
            self.reason = BreakerReason.THROTTLED
            self._next_start = now + THROTTLED_INTERVAL

    def record_start(self, now: float) -> None:
        """A record started while the breaker was open or throttled: schedule the next start."""
        if self.open:
            self._next_start = now + min(LAST_PROBE, FIRST_PROBE * 2**self._probes)
            self._probes = min(self._probes + 1, 10)
        elif self.reason is BreakerReason.THROTTLED:
            self._next_start = now + THROTTLED_INTERVAL

    def allow_next_probe(self) -> None:
        """The last start did not reach the upstream: the next may follow at once."""
        self._next_start = 0.0

    def wait_until(self) -> float:
        """The earliest time of the next start; 0 if any time will do."""
        return self._next_start if self.reason is not None else 0.0
