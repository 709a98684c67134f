"""Returned text: fenced, one line per memory, never larger than the gateway accepts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.markers import strip_fences
from consumer.tools.results import MAX_BYTES, ToolOutcome, memories


def test_no_memories_give_the_fixed_text() -> None:
    for texts in ([], ["", " \n"]):
        result = memories(texts, ToolOutcome.LIVE)
        assert (result.text, result.outcome) == ("No relevant memories found.", ToolOutcome.EMPTY)


def test_memories_beyond_the_size_limit_are_dropped() -> None:
    result = memories([f"{number} " + "ä" * 50_000 for number in range(10)], ToolOutcome.LIVE)
    lines = result.text.splitlines()[1:-1]
    assert [line[2] for line in lines] == ["0", "1"]  # an ä is 6 bytes of ASCII JSON
    assert len(json.dumps(result.text)) <= MAX_BYTES


def test_a_memory_larger_than_the_limit_is_cut() -> None:
    result = memories(["\N{GRINNING FACE}" * 500_000, "never seen"], ToolOutcome.LIVE)
    assert result.text.count("\N{GRINNING FACE}") > 70_000
    assert "never seen" not in result.text
    assert len(json.dumps(result.text)) <= MAX_BYTES


@given(st.lists(st.text(st.characters() | st.characters(categories=["Cs"])), max_size=5))
def test_any_returned_text_is_encodable_and_is_stripped_completely(texts: list[str]) -> None:
    result = memories(texts, ToolOutcome.CACHED)
    result.text.encode()
    assert result.outcome is ToolOutcome.EMPTY or strip_fences(result.text) == ""
