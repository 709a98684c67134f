"""Memories as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.formatting import format_memories


@pytest.mark.parametrize(
    ("memories", "text"),
    [
        ([], ""),
        (["a", "b"], "- a\n- b"),
        (["one\n  two\r\n\nthree"], "- one two three"),
        (["a\u2028b", " \n"], "- a b"),
    ],
)
def test_lines(memories: list[str], text: str) -> None:
    assert format_memories(memories) == text


@given(st.lists(st.text()))
def test_one_line_for_each_memory_that_says_something(memories: list[str]) -> None:
    lines = format_memories(memories).splitlines()
    assert len(lines) == sum(1 for memory in memories if any(line.strip() for line in memory.splitlines()))
    assert all(line.startswith("- ") for line in lines)
