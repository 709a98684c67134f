"""From the recording to Kafka records: which topic and key an event has, and a later run that nobody recorded."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass

from consumer.settings.model import Settings
from demo.recording import Json


@dataclass(frozen=True, slots=True)
class Play:
    """An event and where it goes."""

    topic: str
    key: str
    event: Json


@dataclass(frozen=True, slots=True)
class LaterRun:
    """A run that starts after the recording: the run for Paperclip's API, and its event."""

    run: Json
    event: Json


def topic(field: str) -> str:
    """The default name of a topic, by its setting."""
    name: str = Settings.model_fields[f"topic_{field}"].default
    return name


def play(event: Json) -> Play:
    """The key of a run's event is its run, of a comment's event its comment."""
    if event["eventType"].startswith("agent.run."):
        return Play(topic("agent_runs"), event["payload"]["runId"], event)
    return Play(topic("issue_comments"), event["payload"]["commentId"], event)


def counts(events: Iterable[Json]) -> list[tuple[str, int]]:
    """How many events there are of each type, by type."""
    return sorted(Counter(event["eventType"] for event in events).items())


def later_run(
    runs: Iterable[Json], events: Iterable[Json], new_id: Callable[[], str] = lambda: str(uuid.uuid4())
) -> LaterRun:
    """The last recorded run that a comment woke, once more as a new run, as if its agent were asked the same again."""
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
