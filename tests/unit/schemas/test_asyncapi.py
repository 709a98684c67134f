"""The hand-written AsyncAPI document agrees with the models, the settings' defaults and the headers in the code."""

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from consumer.kafka.topics import topic_specs
from consumer.settings.model import Settings
from consumer.stream.dead_letter_writer import HEADER, headers
from schemas.events import EVENT_TYPES, REPAIR_HEADER, REPLAY_HEADER
from scripts.generate_schemas import DIRECTORY, MODELS, SUFFIX
from tests.unit.stream.samples import item

DOCUMENT: dict[str, Any] = yaml.safe_load((DIRECTORY / "asyncapi.yaml").read_text(encoding="utf-8"))
MESSAGES: dict[str, dict[str, Any]] = {each["name"]: each for each in DOCUMENT["components"]["messages"].values()}


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {reference for item in value for reference in references(item)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own | {reference for item in value.values() for reference in references(item)}


def test_every_reference_resolves() -> None:
    for reference in references(DOCUMENT):
        if reference.startswith("#/"):
            here: Any = DOCUMENT
            for part in reference.removeprefix("#/").split("/"):
                here = here[part]
        else:
            assert (DIRECTORY / reference).is_file()


@pytest.mark.parametrize("name", MODELS)
def test_message_of_each_model_refers_to_its_schema(name: str) -> None:
    assert MESSAGES[name]["payload"] == {"$ref": f"{name}{SUFFIX}"}


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_event_has_the_key_and_headers_of_its_kind(name: str) -> None:
    trait = "runEvent" if name.startswith("agent.run.") else "commentEvent"
    assert MESSAGES[name]["traits"] == [{"$ref": f"#/components/messageTraits/{trait}"}]


def test_messages_are_the_models_and_four_without_one() -> None:
    assert set(MESSAGES) - set(MODELS) == {"recallEnded", "deadLetter", "relayCheckpoint"}


def test_every_message_and_channel_is_used() -> None:
    in_channels = {ref for channel in DOCUMENT["channels"].values() for ref in references(channel["messages"])}
    assert in_channels == {f"#/components/messages/{name}" for name in DOCUMENT["components"]["messages"]}
    used = {operation["channel"]["$ref"] for operation in DOCUMENT["operations"].values()}
    assert used == {f"#/channels/{name}" for name in DOCUMENT["channels"]}


def test_topics_groups_and_partitions_are_the_settings_defaults() -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    topics = {channel["address"] for channel in DOCUMENT["channels"].values()}
    assert topics == {value for name, value in defaults.items() if name.startswith("topic_") and isinstance(value, str)}
    bindings = [operation["bindings"] for operation in DOCUMENT["operations"].values() if "bindings" in operation]
    groups = {group for binding in bindings for group in binding["kafka"]["groupId"]["enum"]}
    assert groups == {defaults["group_recall"], defaults["group_retain"]}
    partitions = {channel["bindings"]["kafka"].get("partitions") for channel in DOCUMENT["channels"].values()}
    assert partitions == {None, defaults["topic_partitions"]}


def test_topic_configuration_is_what_the_topics_command_creates() -> None:
    created = {spec.name: spec.configs for spec in topic_specs(Settings.model_construct())}
    channels = {channel["address"]: channel["bindings"]["kafka"] for channel in DOCUMENT["channels"].values()}
    assert set(channels) == set(created)
    for name, binding in channels.items():
        documented, configs = binding["topicConfiguration"], created[name]
        assert ",".join(documented["cleanup.policy"]) == configs["cleanup.policy"]
        assert documented.get("retention.ms") == (int(configs["retention.ms"]) if "retention.ms" in configs else None)


def test_headers_are_those_in_the_code() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert set(schemas["deliveryHeaders"]["properties"]) == {REPLAY_HEADER, REPAIR_HEADER}
    always = {name for name, _ in headers(item()) if name.startswith(HEADER)}
    sometimes = {f"{HEADER}truncated-from", f"{HEADER}null-value"}
    assert set(schemas["deadLetterHeaders"]["properties"]) == always | sometimes
