"""A recording of a real Paperclip and a real Hindsight; README.md describes it.

The demo plays it, and tests use it as fixtures. Each call returns new objects, which the caller may change.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to Hindsight and its response.

    Attributes:
        body: of the request, None if it had none; path: percent-encoded, with its query.
        reply: body of the response: JSON, or text where it was none.
    """

    name: str
    method: str
    path: str
    body: Any
    status: int
    reply: Any


@dataclass(frozen=True, slots=True)
class Made:
    """Not captured: one change on a captured object (`made_from`: its id), and why."""

    name: str
    made_from: str
    why: str
    value: Any


def events() -> list[Json]:
    """The events as a plugin receives them, in their order."""
    return _lines("plugin-events.jsonl")


def live_events() -> list[Json]:
    """The WebSocket's messages, in their order."""
    return _lines("live-events.jsonl")


def runs() -> list[Json]:
    """Each run, as `GET /api/heartbeat-runs/{id}` answers it."""
    return _list("runs.json")


def runs_list() -> list[Json]:
    """Three rows of `GET /api/companies/{id}/heartbeat-runs`."""
    return _list("runs-list.json")


def comments() -> list[Json]:
    """The comments of every issue, deleted ones too, as `GET /api/issues/{id}/comments` answers them."""
    return _list("comments.json")


def issues() -> list[Json]:
    """The issues of the company."""
    return _list("issues.json")


def agents() -> list[Json]:
    """The agents of the company."""
    return _list("agents.json")


def agent_me() -> Json:
    """What `GET /api/agents/me` answers to an agent's key."""
    return _object("agents-me.json")


def company() -> Json:
    """The company."""
    return _object("company.json")


def activity() -> list[Json]:
    """Rows of `GET /api/companies/{id}/activity`."""
    return _list("activity.json")


def audit_comments() -> list[Json]:
    """Rows of `GET /api/companies/{id}/audit/agent-actions` about comments."""
    items: list[Json] = _object("audit-comments.json")["items"]
    return items


def exchanges() -> list[Exchange]:
    """Everything that was asked of Hindsight, in its order."""
    return [
        Exchange(
            name=row["name"],
            method=row["request"]["method"],
            path=row["request"]["path"],
            body=row["request"].get("body"),
            status=row["response"]["status"],
            reply=row["response"].get("body"),
        )
        for row in _list("hindsight-exchanges.json")
    ]


def exchange(name: str) -> Exchange:
    """The exchange of this name; raises KeyError if there is none."""
    by_name = {recorded.name: recorded for recorded in exchanges()}
    return by_name[name]


def made_names() -> list[str]:
    """Names that `made` takes."""
    return sorted(entry.name.removesuffix(".json") for entry in (files(__package__) / "made").iterdir())


def made(name: str) -> Made:
    """The made object of this name; raises FileNotFoundError if there is none."""
    row = _object(f"made/{name}.json")
    return Made(name=name, made_from=row["made_from"], why=row["why"], value=row["value"])


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _lines(name: str) -> list[Json]:
    return [json.loads(line) for line in _text(name).split("\n") if line]


def _list(name: str) -> list[Json]:
    value: list[Json] = json.loads(_text(name))
    return value


def _object(name: str) -> Json:
    value: Json = json.loads(_text(name))
    return value
