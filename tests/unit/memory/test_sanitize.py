"""Sanitized text can be encoded, and contains no served memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.markers import fence
from consumer.memory.sanitize import is_blank, sanitize, strip_unencodable

any_text = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("plain", "plain"),
        ("a\0b", "ab"),
        ("例\0え", "例え"),
        ("half \ud83c", "half "),
        ("\udf89 other half", " other half"),
        ("\ud83c\0\udf89", ""),
        ("🎉 \ufffd \u200b stay", "🎉 \ufffd \u200b stay"),
    ],
)
def test_strip_unencodable(text: str, stripped: str) -> None:
    assert strip_unencodable(text) == stripped


@given(any_text)
def test_stripped_text_is_encodable_without_nul(text: str) -> None:
    assert b"\0" not in strip_unencodable(text).encode()
    assert strip_unencodable(strip_unencodable(text)) == strip_unencodable(text)


def test_a_marker_hidden_by_nul_or_half_an_emoji_is_found() -> None:
    hidden = fence("secret").replace("clip", "cl\0ip").replace("mem", "me\ud83cm")
    assert sanitize(f"said {hidden} this") == "said \n this"


@given(any_text, any_text)
def test_sanitized_text_contains_no_served_memory(before: str, served: str) -> None:
    sentinel = "\ue000served\ue000"
    assert sentinel not in sanitize(before.replace(sentinel, "") + fence(served + sentinel))


@pytest.mark.parametrize(
    "text", [None, "", "  ", "\n\t\r", "\u200b", "\ufeff \u2060", "\xa0\u3000\u2028\u2029", "\x01\x1f\x85"]
)
def test_invisible_text_is_blank(text: str | None) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " .", "🎉", "\ufffd", "例", "\u200bx"])
def test_text_with_a_visible_character_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@given(any_text)
def test_text_that_python_strips_to_nothing_is_blank(text: str) -> None:
    """Hindsight rejects content whose `strip()` is empty."""
    assert is_blank(text) or text.strip()
