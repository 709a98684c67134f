import pytest

from consumer.observability.health import Health, LivenessLimits, all_of, live, liveness, readiness, ready
from consumer.observability.lane_gauges import Heartbeat, LaneSnapshot
from consumer.stream.hooks import LaneState
from tests.unit.observability.samples import lane

LIMITS = LivenessLimits(loop=30.0, poll=60.0, in_flight=600.0)
STARTED = 1000.0


@pytest.mark.parametrize(
    ("state", "ok", "reason"),
    [
        (lane(last_poll=1999.0), True, "makes progress"),
        (lane(last_poll=1940.0), True, "makes progress"),
        (lane(last_poll=1939.0), False, "has not polled for 61 s (limit 60 s)"),
        (lane(last_poll=1939.0, rebalancing=True), True, "makes progress"),
        (lane(last_poll=1400.0, rebalancing=True), True, "makes progress"),
        (lane(last_poll=1399.0, rebalancing=True), False, "has not polled for 601 s (limit 600 s)"),
        (lane(last_poll=1.0, rebalancing=True, joined=False), True, "makes progress"),
        (lane(last_poll=0.0), False, "has not polled for 1000 s (limit 60 s)"),
        (lane(last_poll=1999.0, oldest_in_flight=600.0), True, "makes progress"),
        (lane(last_poll=1999.0, oldest_in_flight=601.0), False, "an attempt has been running for 601 s (limit 600 s)"),
        (
            lane(last_poll=1939.0, rebalancing=True, oldest_in_flight=601.0),
            False,
            "an attempt has been running for 601 s (limit 600 s)",
        ),
    ],
)
def test_a_lane_is_live_while_it_makes_progress(state: LaneState, ok: bool, reason: str) -> None:
    health = live(LaneSnapshot(2000.0, (state,)), STARTED, 2000.0, LIMITS)
    assert (health.ok, health.lanes) == (ok, {"retain": reason})
    assert health.reason == ("makes progress" if ok else "no progress: retain")


def test_a_blocked_event_loop_is_not_live() -> None:
    snapshot = LaneSnapshot(2000.0, (lane(last_poll=2000.0),))
    assert live(snapshot, STARTED, 2030.0, LIMITS).ok
    health = live(snapshot, STARTED, 2031.0, LIMITS)
    assert not health.ok
    assert health.reason == "the event loop has not run for 31 s (limit 30 s)"


def test_an_old_snapshot_does_not_make_a_lane_look_stalled() -> None:
    assert live(LaneSnapshot(2000.0, (lane(last_poll=1950.0),)), STARTED, 2029.0, LIMITS).ok


def test_only_the_stalled_lane_is_named() -> None:
    snapshot = LaneSnapshot(2000.0, (lane(lane="recall", last_poll=2000.0), lane(last_poll=1.0)))
    health = live(snapshot, STARTED, 2000.0, LIMITS)
    assert health.reason == "no progress: retain"
    assert health.lanes["recall"] == "makes progress"


def test_a_process_without_lanes_is_live() -> None:
    assert live(LaneSnapshot(STARTED, ()), STARTED, STARTED + 5.0, LIMITS).ok


@pytest.mark.parametrize(
    ("state", "ok", "reason"),
    [
        (lane(joined=False), False, "has no assignment yet"),
        (lane(assigned={"a": 4, "b": 1}), True, "holds 5 partitions"),
        (lane(assigned={}), True, "standby: other members hold all partitions"),
        (lane(assigned={"a": 4}, rebalancing=True), True, "holds 4 partitions, rebalancing"),
    ],
)
def test_a_lane_is_ready_once_it_is_in_its_group(state: LaneState, ok: bool, reason: str) -> None:
    health = ready(LaneSnapshot(0.0, (state,)), ("retain",))
    assert (health.ok, health.lanes) == (ok, {"retain": reason})
    assert health.reason == ("all lanes are in their groups" if ok else "not in the group yet: retain")


def test_a_lane_that_has_not_started_is_not_ready() -> None:
    health = ready(LaneSnapshot(0.0, (lane(assigned={"a": 4}),)), ("recall", "retain"))
    assert not health.ok
    assert health.lanes == {"recall": "has no assignment yet", "retain": "holds 4 partitions"}


def test_checks_read_the_heartbeat() -> None:
    now = [2000.0]
    heartbeat = Heartbeat(lambda: [lane(last_poll=now[0], assigned={"a": 1})], lambda: now[0])
    alive, joined = liveness(heartbeat, LIMITS, lambda: now[0]), readiness(heartbeat, ("retain",))
    assert (alive().ok, joined().ok) == (True, False)
    heartbeat.beat()
    assert (alive().ok, joined().ok) == (True, True)
    now[0] = 2031.0
    assert (alive().ok, joined().ok) == (False, True)


def test_all_of_gives_the_reason_of_the_first_failing_check() -> None:
    good, bad = Health(ok=True, reason="fine", lanes={"recall": "holds 8"}), Health(ok=False, reason="not yet")
    both = all_of(lambda: good, lambda: bad)()
    assert (both.ok, both.reason, both.lanes) == (False, "not yet", {"recall": "holds 8"})
    assert all_of(lambda: good, lambda: good)().reason == "fine; fine"
