"""Whether a worker makes progress (`/livez`), and whether it takes part in its groups (`/readyz`).

Neither looks at Hindsight or Paperclip: an outage of theirs is waited out, and a restart would not end it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from consumer.observability.lane_gauges import Pulse, Seen
from consumer.stream.hooks import LaneState


@dataclass(frozen=True, slots=True)
class Health:
    """An answer, with why; `lanes` says it of each lane."""

    ok: bool
    reason: str
    lanes: Mapping[str, str] = field(default_factory=dict)


Check = Callable[[], Health]


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as no progress, in seconds.

    Attributes:
        loop: since the event loop last ran our code.
        poll: since a lane last polled, outside rebalances.
        in_flight: that one attempt may take.
    """

    loop: float = 30.0
    poll: float = 60.0
    in_flight: float = 600.0


def liveness(pulse: Pulse, limits: Limits, now: Callable[[], float] = time.time) -> Check:
    """A check for `/livez`; any thread may call it."""

    def check() -> Health:
        return live(pulse.seen, pulse.started, now(), limits)

    return check


def readiness(pulse: Pulse, lanes: tuple[str, ...]) -> Check:
    """A check for `/readyz` over these lanes; any thread may call it."""

    def check() -> Health:
        return ready(pulse.seen, lanes)

    return check


def all_of(*checks: Check) -> Check:
    """A check that holds when all of these do; its reason is that of the first that does not."""

    def check() -> Health:
        found = [each() for each in checks]
        lanes = {lane: text for health in found for lane, text in health.lanes.items()}
        wrong = [health for health in found if not health.ok]
        reason = wrong[0].reason if wrong else "; ".join(health.reason for health in found)
        return Health(ok=not wrong, reason=reason, lanes=lanes)

    return check


def live(seen: Seen, started: float, now: float, limits: Limits) -> Health:
    """Whether the process makes progress: its event loop runs, its lanes poll, and no attempt hangs."""
    loop_age = now - seen.at
    if loop_age > limits.loop:
        return Health(ok=False, reason=f"the event loop has not run for {loop_age:.0f} s (limit {limits.loop:.0f} s)")
    problems = {lane.lane: _stuck(lane, started, seen.at, limits) for lane in seen.lanes}
    lanes = {lane: problem or "makes progress" for lane, problem in problems.items()}
    stuck = [lane for lane, problem in problems.items() if problem]
    return Health(ok=not stuck, reason=f"no progress: {', '.join(stuck)}" if stuck else "makes progress", lanes=lanes)


def ready(seen: Seen, expected: tuple[str, ...]) -> Health:
    """Whether every lane is in its group: with partitions, or standing by without."""
    states = {lane.lane: lane for lane in seen.lanes}
    lanes = {name: _membership(states.get(name)) for name in expected}
    waiting = [name for name in expected if name not in states or not states[name].joined]
    return Health(
        ok=not waiting,
        reason=f"not in the group yet: {', '.join(waiting)}" if waiting else "all lanes are in their groups",
        lanes=lanes,
    )


def _stuck(lane: LaneState, started: float, at: float, limits: Limits) -> str:
    poll_age = at - max(lane.last_poll, started)
    if poll_age > limits.poll and not lane.rebalancing:
        return f"has not polled for {poll_age:.0f} s (limit {limits.poll:.0f} s)"
    if lane.oldest_in_flight > limits.in_flight:
        return f"an attempt runs for {lane.oldest_in_flight:.0f} s (limit {limits.in_flight:.0f} s)"
    return ""


def _membership(lane: LaneState | None) -> str:
    if lane is None or not lane.joined:
        return "has no assignment yet"
    partitions = sum(lane.assigned.values())
    state = f"holds {partitions} partitions" if partitions else "stands by: other members hold all partitions"
    return f"{state}, rebalancing" if lane.rebalancing else state
