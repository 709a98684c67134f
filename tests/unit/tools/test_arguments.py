"""The tools' arguments: valid ones, and the messages for invalid ones."""

from time import process_time
from typing import Any

import pytest

from consumer.tools.arguments import MAX_CONTENT, MAX_QUERY, RecallArguments, RetainArguments, parse_arguments
from consumer.tools.credentials import ToolError


def test_valid_arguments_are_parsed() -> None:
    assert parse_arguments(RecallArguments, {"query": "x"}) == RecallArguments(query="x", fresh=False)
    assert parse_arguments(RecallArguments, {"query": "x" * MAX_QUERY, "fresh": True}).fresh
    assert parse_arguments(RetainArguments, {"content": "half an emoji \ud83d\0"}).content == "half an emoji "


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "'query' is missing"),
        ({}, "'query' is missing"),
        ({"query": ""}, "'query' is empty"),
        ({"query": "\ud800"}, "'query' is empty"),
        ({"query": "x" * (MAX_QUERY + 1)}, f"'query' is longer than {MAX_QUERY} characters"),
        ({"query": 7}, "'query' must be text"),
        ({"query": ["x"]}, "'query' must be text"),
        ({"query": "x", "fresh": "yes"}, "'fresh' must be true or false"),
        ({"query": "x", "bank": "paperclip::a::b"}, "Unknown argument 'bank'"),
        ({"query": "x", "agent_id": "ada"}, "Unknown argument 'agent_id'"),
        ({"query": "x", "que\ud800ries": 1}, "Unknown argument 'queries'"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(raw: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(ToolError, match=message) as raised:
        parse_arguments(RecallArguments, raw)
    assert raised.value.status == 400


def test_argument_errors_quote_no_value() -> None:
    with pytest.raises(ToolError) as raised:
        parse_arguments(RetainArguments, {"content": "hunter2" * MAX_CONTENT, "key": "hunter2"})
    assert "hunter2" not in raised.value.message


@pytest.mark.parametrize("model", [RecallArguments, RetainArguments])
def test_the_schema_describes_every_argument_and_names_no_other_owner(
    model: type[RecallArguments | RetainArguments],
) -> None:
    schema = model.model_json_schema()
    assert schema["additionalProperties"] is False
    assert all(spec["description"] for spec in schema["properties"].values())
    assert not {"bank", "agent", "company", "run", "user"} & set(schema["properties"])


def test_a_long_argument_name_is_cut_in_the_message() -> None:
    with pytest.raises(ToolError, match=f"^Unknown argument '{'x' * 40}' "):
        parse_arguments(RecallArguments, {"query": "x", "x" * 1000: 1})


def test_a_hundred_thousand_arguments_are_refused_without_validating_each() -> None:
    raw = {f"a{number}": 1 for number in range(100_000)}
    started = process_time()
    with pytest.raises(ToolError, match="too many arguments"):
        parse_arguments(RecallArguments, raw)
    assert process_time() - started < 0.05
