"""Turns recorded events into Kafka messages, and makes an event of a later run."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass

from consumer.settings.model import Settings
from demo.recording import Json


@dataclass(frozen=True, slots=True)
class Message:
    """An event with its topic and key."""

    topic: str
    key: str
    event: Json


@dataclass(frozen=True, slots=True)
class LaterRun:
    """A run that starts after the recording: the run as Paperclip's API returns it, and its event."""

    run: Json
    event: Json


def topic(field: str) -> str:
    """A topic's default name, by its setting."""
    name: str = Settings.model_fields[f"topic_{field}"].default
    return name


def to_message(event: Json) -> Message:
    """A message is keyed by its run or comment."""
    if event["eventType"].startswith("agent.run."):
        return Message(topic("agent_runs"), event["payload"]["runId"], event)
    return Message(topic("issue_comments"), event["payload"]["commentId"], event)


def counts(events: Iterable[Json]) -> list[tuple[str, int]]:
    """The number of events of each type."""
    return sorted(Counter(event["eventType"] for event in events).items())


def later_run(
    runs: Iterable[Json], events: Iterable[Json], new_id: Callable[[], str] = lambda: str(uuid.uuid4())
) -> LaterRun:
    """A copy of the last recorded run that a comment woke, as if the agent were asked the same again."""
    woken = [run for run in runs if ((run["contextSnapshot"] or {}).get("paperclipWake") or {}).get("comments")]
    model = max(woken, key=lambda run: str(run["startedAt"]))
    started = next(
        event
        for event in events
        if event["eventType"] == "agent.run.started" and event["payload"]["runId"] == model["id"]
    )
    run, event = deepcopy(model), deepcopy(started)
    run["id"] = event["entityId"] = event["payload"]["runId"] = new_id()
    event["eventId"] = new_id()
    return LaterRun(run, event)
