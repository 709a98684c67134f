"""Memories formatted as lines."""

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
def test_format_memories(memories: list[str], text: str) -> None:
    assert format_memories(memories) == text


@given(st.lists(st.text()))
def test_each_memory_that_is_not_blank_is_one_line(memories: list[str]) -> None:
    lines = format_memories(memories).splitlines()
    assert len(lines) == sum(1 for memory in memories if any(line.strip() for line in memory.splitlines()))
    assert all(line.startswith("- ") for line in lines)
