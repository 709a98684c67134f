"""Arguments: what fits, and the words for what does not."""

from typing import Any

import pytest

from consumer.tools.arguments import MAX_CONTENT, MAX_QUERY, RecallArguments, RetainArguments, read
from consumer.tools.credentials import Refused


def test_what_fits() -> None:
    assert read(RecallArguments, {"query": "x"}) == RecallArguments(query="x", fresh=False)
    assert read(RecallArguments, {"query": "x" * MAX_QUERY, "fresh": True}).fresh
    assert read(RetainArguments, {"content": "half an emoji \ud83d\0"}).content == "half an emoji "


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "'query' is missing"),
        ({}, "'query' is missing"),
        ({"query": ""}, "'query' is empty"),
        ({"query": "\ud800"}, "'query' is empty"),
        ({"query": "x" * (MAX_QUERY + 1)}, f"'query' is longer than {MAX_QUERY} characters"),
        ({"query": 7}, "'query' must be text"),
        ({"query": ["x"]}, "'query' must be text"),
        ({"query": "x", "fresh": "yes"}, "'fresh' must be true or false"),
        ({"query": "x", "bank": "paperclip::a::b"}, "no argument 'bank'"),
        ({"query": "x", "agent_id": "ada"}, "no argument 'agent_id'"),
        ({"query": "x", "que\ud800ries": 1}, "no argument 'queries'"),
    ],
)
def test_what_does_not_fit(given: dict[str, Any] | None, words: str) -> None:
    with pytest.raises(Refused, match=words) as refusal:
        read(RecallArguments, given)
    assert refusal.value.status == 400


def test_values_are_never_quoted() -> None:
    with pytest.raises(Refused) as refusal:
        read(RetainArguments, {"content": "hunter2" * MAX_CONTENT, "key": "hunter2"})
    assert "hunter2" not in refusal.value.words


@pytest.mark.parametrize("model", [RecallArguments, RetainArguments])
def test_the_schema_that_agents_see(model: type[RecallArguments | RetainArguments]) -> None:
    schema = model.model_json_schema()
    assert schema["additionalProperties"] is False
    assert all(each["description"] for each in schema["properties"].values())
    assert not {"bank", "agent", "company", "run", "user"} & set(schema["properties"])
