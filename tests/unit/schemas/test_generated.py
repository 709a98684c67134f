"""The committed JSON Schemas are generated from the models, and the examples are valid messages."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from demo import recording
from schemas.codec import decode, encode, parse
from schemas.events import EVENT_TYPES
from schemas.recalls import RecallRecord
from scripts.generate_schemas import DIRECTORY, MODELS, json_schema, stale, write


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DIRECTORY / "examples" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def test_committed_schemas_are_not_stale() -> None:
    assert stale() == []


def test_write_replaces_stale_files_and_removes_unknown_ones(tmp_path: Path) -> None:
    assert len(write(tmp_path)) == len(MODELS)
    assert write(tmp_path) == []
    (tmp_path / "recall.schema.json").write_text("{}")
    (tmp_path / "agent.hired.schema.json").touch()
    (tmp_path / "agent.run.failed.schema.json").unlink()
    changed = [tmp_path / f"{name}.schema.json" for name in ("agent.hired", "agent.run.failed", "recall")]
    assert stale(tmp_path) == changed
    assert write(tmp_path) == changed
    assert stale(tmp_path) == []
    assert not changed[0].exists()


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_examples_are_events_of_their_type(name: str) -> None:
    value = example(name)["value"]
    event = parse(decode(encode(value)))
    assert type(event) is EVENT_TYPES[name]
    assert decode(encode(event)) == value


def test_recall_example_is_a_recall_record() -> None:
    value = example("recall")["value"]
    assert decode(encode(RecallRecord.model_validate(value))) == value
    assert value["memories"]


@pytest.mark.parametrize("name", MODELS)
def test_examples_say_where_they_come_from(name: str) -> None:
    found = example(name)
    captured = [event for event in recording.events() if event["eventType"] == name]
    assert found["origin"] == ("captured" if captured else "made")
    if captured:
        assert found["value"] in captured
        assert found["value"]["eventId"] in found["from"]
    for ident in re.findall(r"id ([0-9a-f-]{36})", found["from"].replace("eventId", "id")):
        known = [*recording.events(), *recording.audit_comments(), *recording.runs()]
        assert ident in {row.get("id", row.get("eventId")) for row in known}


@pytest.mark.parametrize("name", MODELS)
def test_schemas_use_the_field_names_of_the_wire(name: str) -> None:
    schema = json_schema(name)
    assert schema["additionalProperties"] is True
    assert set(example(name)["value"]) <= set(schema["properties"])
    assert not re.search(r'"`?[a-z]+_(id|at|type|agent_id)`?"', json.dumps(schema))
    assert not re.search(r"`(creator_email|entity_id|body_snippet|bank_id|run_id)`", json.dumps(schema))


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_identity_is_required_and_a_uuid(name: str) -> None:
    schema = json_schema(name)
    needed = {"eventId", "eventType", "companyId", "payload"}
    assert set(schema["required"]) == needed | ({"entityId"} if name.startswith("issue.") else set())
    assert schema["properties"]["eventType"]["const"] == name
    uuid = re.compile(schema["properties"]["eventId"]["pattern"])
    assert uuid.match(example(name)["value"]["eventId"])
    assert not uuid.match("local-board")
