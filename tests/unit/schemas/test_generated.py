"""The committed JSON Schemas, examples and AsyncAPI document are what the models give, and fit the settings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from consumer.kafka.topics import topic_specs
from consumer.settings.model import Settings
from demo import recording
from schemas import generate
from schemas.codec import decode, encode, parse
from schemas.events import EVENT_TYPES
from schemas.generate import MODELS, asyncapi, json_schema, stale, write
from schemas.recalls import RecallRecord

HERE = generate.HERE


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "examples" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_committed_files_are_not_stale() -> None:
    assert stale() == []


def test_write_mends_what_is_stale(tmp_path: Path) -> None:
    assert len(write(tmp_path)) == len(generate.files())
    assert write(tmp_path) == []
    (tmp_path / "asyncapi.yaml").write_text("asyncapi: 2.0.0\n")
    (tmp_path / "agent.hired.schema.json").touch()
    (tmp_path / "examples" / "recall.json").unlink()
    expected = [tmp_path / "agent.hired.schema.json", tmp_path / "asyncapi.yaml", tmp_path / "examples" / "recall.json"]
    assert stale(tmp_path) == expected
    assert write(tmp_path) == expected
    assert stale(tmp_path) == []
    assert not expected[0].exists()


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_examples_are_events_of_their_type(name: str) -> None:
    value = example(name)["value"]
    event = parse(decode(encode(value)))
    assert type(event) is EVENT_TYPES[name]
    assert decode(encode(event)) == value


def test_the_recalls_example_is_a_record() -> None:
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
def test_schemas_name_the_wires_fields(name: str) -> None:
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


def test_asyncapi_file_holds_the_document() -> None:
    text = (HERE / "asyncapi.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == asyncapi()
    assert "&id" not in text


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {each for item in value for each in references(item)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own | {each for item in value.values() for each in references(item)}


def test_asyncapi_references_lead_somewhere() -> None:
    root = asyncapi()
    found = references(root)
    assert len(found) > len(EVENT_TYPES)
    for reference in found:
        here: Any = root
        for part in reference.removeprefix("#/").split("/"):
            here = here[part]


def test_asyncapi_uses_every_message_and_channel() -> None:
    root = asyncapi()
    in_channels = {ref for channel in root["channels"].values() for ref in references(channel["messages"])}
    assert in_channels == {f"#/components/messages/{name}" for name in root["components"]["messages"]}
    used = {operation["channel"]["$ref"] for operation in root["operations"].values()}
    assert used == {f"#/channels/{name}" for name in root["channels"]}


def test_asyncapi_names_the_topics_and_groups_that_are_the_settings_defaults() -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    root = asyncapi()
    topics = {channel["address"] for channel in root["channels"].values()}
    assert topics == {value for name, value in defaults.items() if name.startswith("topic_") and isinstance(value, str)}
    bindings = [operation["bindings"] for operation in root["operations"].values() if "bindings" in operation]
    groups = {group for binding in bindings for group in binding["kafka"]["groupId"]["enum"]}
    assert groups == {defaults["group_recall"], defaults["group_retain"]}
    partitions = {channel["bindings"]["kafka"].get("partitions") for channel in root["channels"].values()}
    assert partitions == {None, defaults["topic_partitions"]}


def test_asyncapi_says_of_each_topic_what_the_topics_command_makes() -> None:
    made = {spec.name: spec.configs for spec in topic_specs(Settings.model_construct())}
    channels = asyncapi()["channels"].values()
    assert {channel["address"] for channel in channels} == set(made)
    for channel in channels:
        said = channel["bindings"]["kafka"]["topicConfiguration"]
        configs = made[channel["address"]]
        assert ",".join(said["cleanup.policy"]) == configs["cleanup.policy"]
        assert said.get("retention.ms") == (int(configs["retention.ms"]) if "retention.ms" in configs else None)
