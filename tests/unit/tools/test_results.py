"""Served text: fenced, one line for each memory, and never larger than the gateway takes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.markers import strip
from consumer.tools.results import MAX_BYTES, ToolOutcome, memories


def test_nothing_is_said_in_words() -> None:
    for texts in ([], ["", " \n"]):
        answer = memories(texts, ToolOutcome.LIVE)
        assert (answer.text, answer.outcome) == ("No relevant memories found.", ToolOutcome.EMPTY)


def test_the_first_that_fit_are_served() -> None:
    answer = memories([f"{number} " + "ä" * 50_000 for number in range(10)], ToolOutcome.LIVE)
    lines = answer.text.splitlines()[1:-1]
    assert [line[2] for line in lines] == ["0", "1"]  # an ä is 6 bytes of ASCII JSON
    assert len(json.dumps(answer.text)) <= MAX_BYTES


def test_one_that_does_not_fit_alone_is_cut() -> None:
    answer = memories(["\N{GRINNING FACE}" * 500_000, "never seen"], ToolOutcome.LIVE)
    assert answer.text.count("\N{GRINNING FACE}") > 70_000
    assert "never seen" not in answer.text
    assert len(json.dumps(answer.text)) <= MAX_BYTES


@given(st.lists(st.text(st.characters() | st.characters(categories=["Cs"])), max_size=5))
def test_whatever_is_served_can_be_sent_and_is_stripped_whole(texts: list[str]) -> None:
    answer = memories(texts, ToolOutcome.CACHED)
    answer.text.encode()
    assert answer.outcome is ToolOutcome.EMPTY or strip(answer.text) == ""
