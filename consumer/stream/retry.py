"""How long a record waits before its next attempt. Pure but for the random jitter."""

import random
from dataclasses import dataclass

MIN_WAIT = 3_600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Full-jitter backoff (uniform in [0, min(longest, first · 2ⁿ)]) and the limits at which to give up.

    Attributes:
        max_attempts: charged failures after which a record becomes a dead letter.
        first, longest: seconds.
        wait_deadline: age in seconds at which a record that is still `NotYet` becomes a dead letter, if it was asked
            about for `MIN_WAIT` seconds: an outage of a day makes no dead letters.
    """

    max_attempts: int = 10
    first: float = 1.0
    longest: float = 300.0
    wait_deadline: float = 86_400.0

    def is_overdue(self, age: float, waited: float) -> bool:
        """Whether to give up on a record of this age that has waited for so long between its attempts (seconds)."""
        return age >= self.wait_deadline and waited >= min(MIN_WAIT, self.wait_deadline)

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds until the next attempt after this many failures; at least `retry_after`, at most `longest`."""
        delay = random.uniform(0, min(self.longest, self.first * 2 ** min(failures - 1, 30)))  # noqa: S311 - jitter
        return min(self.longest, max(delay, retry_after or 0.0))
