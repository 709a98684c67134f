"""Markers: fenced text is stripped completely, and the text around it is kept."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.memory import markers
from consumer.memory.markers import fence, strip_fences

OPENINGS = (
    "<paperclip-memory>",
    "<Paperclip-Memory>",
    "<paperclip_memory>",
    "< paperclip-memory\t>",
    '<paperclip-memory run="7">',
    "&lt;paperclip-memory&gt;",
    "\\<paperclip-memory\\>",
    "<paperclip\\-memory>",
)
CLOSINGS = (
    "</paperclip-memory>",
    "</PAPERCLIP-MEMORY>",
    "< / paperclip-memory >",
    "&lt;/paperclip-memory&gt;",
    "\\</paperclip-memory\\>",
    "<\\/paperclip_memory>",
)
pieces = st.sampled_from(
    [
        *OPENINGS,
        *CLOSINGS,
        "<",
        ">",
        "</",
        "/",
        "\\",
        "&lt;",
        "&gt;",
        "paperclip",
        "-memory",
        "paperclip-memory",
        " ",
        "\n",
        "secret",
        "[",
        "]",
        "\r",
        "\u2028",
    ]
)
hostile = st.lists(pieces, max_size=12).map("".join) | st.text()
plain = st.text(st.characters(exclude_characters="<>&"), min_size=1).map(lambda text: f"a{text}z")


def test_a_fence_is_a_pair_of_lines() -> None:
    assert fence("- one\n- two") == "<paperclip-memory>\n- one\n- two\n</paperclip-memory>"


@given(hostile)
def test_stripping_a_fence_leaves_nothing_of_its_text(served: str) -> None:
    assert strip_fences(fence(served)) == ""


@given(plain, hostile, plain)
def test_text_around_a_fence_is_kept(before: str, served: str, after: str) -> None:
    assert strip_fences(before + fence(served) + after) == f"{before}\n{after}"


@given(hostile, plain)
def test_a_nested_fence_is_stripped_as_one_block(served: str, after: str) -> None:
    assert strip_fences(fence(fence(served)) + after) == after


@given(hostile)
def test_stripping_never_makes_a_new_marker(text: str) -> None:
    assert strip_fences(strip_fences(text)) == strip_fences(text)


@given(st.text())
def test_text_without_a_marker_is_unchanged(text: str) -> None:
    assert strip_fences(text) == text


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("closing", CLOSINGS)
def test_markers_are_recognised_as_models_quote_them(opening: str, closing: str) -> None:
    assert strip_fences(f"before {opening} secret {closing} after") == "before \n after"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<paperclip-memory>secret", "a"),
        ("<paperclip-memory>secret", ""),
        ("a<paperclip-memory>x<paperclip-memory>y</paperclip-memory>z</paperclip-memory>b", "a\nb"),
        ("a<paperclip-memory>x<paperclip-memory>y</paperclip-memory>b", "a"),
        ("a</paperclip-memory>b", "a\nb"),
        ("a</paperclip-memory></paperclip-memory>b<paperclip-memory>x</paperclip-memory>c", "a\nb\nc"),
        ("<pap<paperclip-memory>x</paperclip-memory>erclip-memory>kept", "<pap\nerclip-memory>kept"),
        ("<<paperclip-memory>x</paperclip-memory>paperclip-memory>kept", "<\npaperclip-memory>kept"),
        ("a\n> <paperclip-memory>\n> - x\n> </paperclip-memory>\n", "a\n> "),
        ("```\n<paperclip-memory>\n- x\n</paperclip-memory>\n```", ""),
        ("> <paperclip-memory>\n> - x\n> </paperclip-memory>", ""),
        ("we install paperclip-memory with pip", "we install paperclip-memory with pip"),
        ("<paperclip-memory-tools> is another thing", "<paperclip-memory-tools> is another thing"),
        ("cut in its marker <paperclip-mem", "cut in its marker <paperclip-mem"),
    ],
)
def test_broken_and_nested_fences_are_stripped(text: str, left: str) -> None:
    assert strip_fences(text) == left


def test_a_fence_inside_a_json_string_is_stripped() -> None:
    quoted = json.dumps({"text": fence("secret\n- </paperclip-memory> more")})
    assert "secret" not in strip_fences(quoted)
    assert "more" not in strip_fences(quoted)


def test_the_marker_pattern_has_no_unbounded_repeat() -> None:
    """Such a pattern takes time quadratic in the length of a hostile text."""
    assert not set("*+") & set(markers._MARKER.pattern + markers._ANY_START.pattern)
    assert not re.search(r"\{\d+,\}", markers._MARKER.pattern)
