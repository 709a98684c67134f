"""Queries of a recall: title, description and comments, in a form that Hindsight accepts."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.markers import fence
from consumer.memory.recall_query import MAX_CHARACTERS, build_query, first_half, is_searchable
from schemas.paperclip import WakeComment

any_text = st.text(st.characters(exclude_categories=()))


def wake_comment(body: str | None, created_at: str | None = None, **source_trust: Any) -> WakeComment:
    return WakeComment.model_validate({"body": body, "createdAt": created_at, "sourceTrust": source_trust or None})


@pytest.mark.parametrize(
    ("title", "description", "comments", "query"),
    [
        ("T", "D", [], "T\nD"),
        (None, "D", [], "D"),
        ("T", " ", [wake_comment(None), wake_comment(""), wake_comment("\u200b")], "T"),
        (
            "T",
            None,
            [wake_comment("old", "2026-11-30T09:00:00Z"), wake_comment("new", "2026-11-30T10:00:00Z")],
            "T\nnew\nold",
        ),
        ("T", None, [wake_comment("no date"), wake_comment("dated", "2026-11-30T09:00:00Z")], "T\ndated\nno date"),
        (
            "T",
            None,
            [wake_comment("bad", disposition="quarantined"), wake_comment("good", preset="standard")],
            "T\ngood",
        ),
        ("T\0", "half \ud83c", [wake_comment(f"see {fence('secret')} here")], "T\nhalf \nsee \n here"),
        (None, None, [], ""),
    ],
)
def test_build_query(title: str | None, description: str | None, comments: list[WakeComment], query: str) -> None:
    assert build_query(title, description, comments) == query


@given(any_text, any_text, st.lists(any_text.map(wake_comment), max_size=3))
def test_a_query_is_encodable_and_within_its_limit(title: str, description: str, comments: list[WakeComment]) -> None:
    query = build_query(title, description, comments)
    assert len(query) <= MAX_CHARACTERS
    query.encode()


def test_a_long_query_is_cut_at_its_end() -> None:
    assert build_query("🎉" * 1_500, "d" * 1_500, []) == "🎉" * 1_500 + "\n" + "d" * 499


@given(any_text)
def test_is_searchable_agrees_with_hindsights_check(query: str) -> None:
    tokens = re.sub(r"[^\w\s]", " ", query.lower()).split()
    assert is_searchable(query) == bool(tokens)


@pytest.mark.parametrize(
    ("query", "word"), [("🎉 !?", False), ("", False), ("_", True), ("例", True), ("İ", True), ("7", True)]
)
def test_is_searchable(query: str, word: bool) -> None:
    assert is_searchable(query) is word


@given(any_text)
def test_first_half(query: str) -> None:
    assert query.startswith(first_half(query))
    assert len(first_half(query)) == len(query) // 2
