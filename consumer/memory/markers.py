"""The fence around memories that our tools serve, and its removal before a comment is retained.

An agent that quotes what it recalled would otherwise have it retained again, and it would grow with each run. The two
functions are a pair: `strip(fence(x))` leaves nothing of `x`, whatever `x` holds.

A marker stands on one line, in any case, and is known as Markdown and models quote it too: with blanks or attributes in
it, as `&lt;…&gt;`, or with backslashes. `strip` puts a line break where a fenced block was, so that the text around it
can never close up into a new marker: one pass is enough. All repeats in the pattern are bounded, so that its time grows
with the text and no faster.
"""

import re

_START = r"\\?(?:<|&lt;)[ \t]{0,8}(?P<end>\\?/[ \t]{0,8})?"
_NAME = r"paperclip\\?[-_]memory"
_ANY_START = re.compile(rf"{_START}(?={_NAME})", re.IGNORECASE | re.ASCII)
_MARKER = re.compile(rf"{_START}{_NAME}(?:[ \t][^<>\n]{{0,80}}?)?\\?(?:>|&gt;)", re.IGNORECASE | re.ASCII)
_QUOTING = re.compile(r"[\s>`*~_\\-]*")


def fence(text: str) -> str:
    """Put a fence around served text; markers in the text itself are made harmless."""
    return f"<paperclip-memory>\n{_ANY_START.sub('[', text)}\n</paperclip-memory>"


def strip(text: str) -> str:
    """Take out every fenced block; the text around them is kept.

    Blocks nest. What an unclosed fence holds is taken out to the text's end, and an end without a beginning goes alone.
    Quoting that nothing is left of (`>`, backticks, list marks) goes too.
    """
    if "paperclip" not in text.lower():
        return text
    kept: list[str] = []
    depth = position = 0
    for marker in _MARKER.finditer(text):
        if depth == 0:
            kept.append(text[position : marker.start()])
        depth = max(0, depth - 1) if marker["end"] else depth + 1
        position = marker.end()
    if position == 0:
        return text
    if depth == 0:
        kept.append(text[position:])
    return "\n".join(part for part in kept if not _QUOTING.fullmatch(part))
