"""Lane states and signals for these tests."""

from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from consumer.stream.hooks import AttemptFinished, AttemptOutcome, LaneState

IDLE = LaneState(
    lane="retain",
    in_flight=0,
    buffered=0,
    parked={},
    breakers={},
    paused={},
    assigned={},
    last_poll=0.0,
    last_commit=0.0,
    oldest_uncommitted=0.0,
    oldest_in_flight=0.0,
    joined=True,
    rebalancing=False,
)
SUCCEEDED = AttemptFinished(
    lane="retain",
    handler="retain",
    outcome=AttemptOutcome.SUCCEEDED,
    duration=0.05,
    age=1.5,
    attempts=1,
    facts={"event_id": "e"},
)


def lane(**changes: Any) -> LaneState:
    return replace(IDLE, **changes)


def attempt(**changes: Any) -> AttemptFinished:
    return replace(SUCCEEDED, **changes)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"paperclip_memory_{name}", labels)
