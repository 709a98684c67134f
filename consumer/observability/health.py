"""Checks of progress (`/livez`) and of group membership (`/readyz`).

Neither checks Hindsight or Paperclip: the worker waits during their outages, and a restart would not help.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from consumer.observability.lane_gauges import Heartbeat, LaneSnapshot
from consumer.stream.hooks import LaneState


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a check, with the reason in total and for each lane."""

    ok: bool
    reason: str
    lanes: Mapping[str, str] = field(default_factory=dict)


Check = Callable[[], Health]


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """Seconds beyond which there is no progress.

    Attributes:
        loop: since the event loop last ran our code.
        poll: since the last poll of a lane, outside rebalances.
        rebalance: the same during a rebalance. A lane that has not joined its group yet is not ready, but live.
        in_flight: for one attempt.
    """

    loop: float = 30.0
    poll: float = 60.0
    rebalance: float = 600.0
    in_flight: float = 600.0


def liveness(heartbeat: Heartbeat, limits: LivenessLimits, now: Callable[[], float] = time.time) -> Check:
    """A check for `/livez`; any thread may call it."""

    def check() -> Health:
        return live(heartbeat.snapshot, heartbeat.started, now(), limits)

    return check


def readiness(heartbeat: Heartbeat, lanes: tuple[str, ...]) -> Check:
    """A check for `/readyz` over these lanes; any thread may call it."""

    def check() -> Health:
        return ready(heartbeat.snapshot, lanes)

    return check


def all_of(*checks: Check) -> Check:
    """A check that passes if all of these do; its reason is that of the first that fails."""

    def check_all() -> Health:
        results = [check() for check in checks]
        lanes = {lane: text for health in results for lane, text in health.lanes.items()}
        failures = [health for health in results if not health.ok]
        reason = failures[0].reason if failures else "; ".join(health.reason for health in results)
        return Health(ok=not failures, reason=reason, lanes=lanes)

    return check_all


def live(snapshot: LaneSnapshot, started: float, now: float, limits: LivenessLimits) -> Health:
    """Whether the process makes progress: the event loop runs, the lanes poll, and no attempt hangs."""
    loop_age = now - snapshot.at
    if loop_age > limits.loop:
        return Health(ok=False, reason=f"the event loop has not run for {loop_age:.0f} s (limit {limits.loop:.0f} s)")
    problems = {lane.lane: _problem(lane, started, snapshot.at, limits) for lane in snapshot.lanes}
    lanes = {lane: problem or "makes progress" for lane, problem in problems.items()}
    stalled = [lane for lane, problem in problems.items() if problem]
    reason = f"no progress: {', '.join(stalled)}" if stalled else "makes progress"
    return Health(ok=not stalled, reason=reason, lanes=lanes)


def ready(snapshot: LaneSnapshot, expected: tuple[str, ...]) -> Health:
    """Whether every lane has joined its group, with or without partitions."""
    states = {lane.lane: lane for lane in snapshot.lanes}
    lanes = {name: _membership(states.get(name)) for name in expected}
    waiting = [name for name in expected if name not in states or not states[name].joined]
    return Health(
        ok=not waiting,
        reason=f"not in the group yet: {', '.join(waiting)}" if waiting else "all lanes are in their groups",
        lanes=lanes,
    )


def _problem(lane: LaneState, started: float, at: float, limits: LivenessLimits) -> str:
    poll_age = at - max(lane.last_poll, started)
    limit = limits.rebalance if lane.rebalancing else limits.poll
    if poll_age > limit and (lane.joined or not lane.rebalancing):
        return f"has not polled for {poll_age:.0f} s (limit {limit:.0f} s)"
    if lane.oldest_in_flight > limits.in_flight:
        return f"an attempt has been running for {lane.oldest_in_flight:.0f} s (limit {limits.in_flight:.0f} s)"
    return ""


def _membership(lane: LaneState | None) -> str:
    if lane is None or not lane.joined:
        return "has no assignment yet"
    partitions = sum(lane.assigned.values())
    state = f"holds {partitions} partitions" if partitions else "standby: other members hold all partitions"
    return f"{state}, rebalancing" if lane.rebalancing else state
