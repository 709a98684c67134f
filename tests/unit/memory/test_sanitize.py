"""Cleaning: what Hindsight gets is text that it can hold, and nothing that it gave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory.markers import fence
from consumer.memory.sanitize import is_blank, sanitize, strip_unencodable

any_text = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "mended"),
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
def test_mend(text: str, mended: str) -> None:
    assert strip_unencodable(text) == mended


@given(any_text)
def test_mended_text_has_utf8_and_no_nul(text: str) -> None:
    assert b"\0" not in strip_unencodable(text).encode()
    assert strip_unencodable(strip_unencodable(text)) == strip_unencodable(text)


def test_a_marker_that_nul_or_half_an_emoji_hides_is_found() -> None:
    hidden = fence("secret").replace("clip", "cl\0ip").replace("mem", "me\ud83cm")
    assert sanitize(f"said {hidden} this") == "said \n this"


@given(any_text, any_text)
def test_nothing_served_survives_cleaning(before: str, served: str) -> None:
    sentinel = "\ue000served\ue000"
    assert sentinel not in sanitize(before.replace(sentinel, "") + fence(served + sentinel))


@pytest.mark.parametrize(
    "text", [None, "", "  ", "\n\t\r", "\u200b", "\ufeff \u2060", "\xa0\u3000\u2028\u2029", "\x01\x1f\x85"]
)
def test_blank(text: str | None) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " .", "🎉", "\ufffd", "例", "\u200bx"])
def test_not_blank(text: str) -> None:
    assert not is_blank(text)


@given(any_text)
def test_what_python_calls_blank_is_blank(text: str) -> None:
    """Hindsight refuses content whose `strip()` is empty."""
    assert is_blank(text) or text.strip()
