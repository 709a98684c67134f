"""Marks the memories that our tools serve, and removes them again before a comment is retained.

Without the markers, an agent that quotes recalled memories would have them retained again, and they would grow with
each run. The two functions are a pair: `strip_fences(fence(x))` leaves nothing of `x`, whatever `x` contains.

A marker stands on one line, in upper or lower case. It is also recognised as Markdown and models quote it: with blanks
or attributes in it, as `&lt;…&gt;`, or with backslashes. `strip_fences` replaces a fenced block by a line break, so
that the text around it can never form a new marker, and one pass is enough. All repeats in the pattern are bounded, so
that matching takes time linear in the length of the text.
"""

import re

_START = r"\\?(?:<|&lt;)[ \t]{0,8}(?P<end>\\?/[ \t]{0,8})?"
_NAME = r"paperclip\\?[-_]memory"
_ANY_START = re.compile(rf"{_START}(?={_NAME})", re.IGNORECASE | re.ASCII)
_MARKER = re.compile(rf"{_START}{_NAME}(?:[ \t][^<>\n]{{0,80}}?)?\\?(?:>|&gt;)", re.IGNORECASE | re.ASCII)
_QUOTING = re.compile(r"[\s>`*~_\\-]*")


def fence(text: str) -> str:
    """Put markers around served text; a marker inside the text is made unrecognisable."""
    return f"<paperclip-memory>\n{_ANY_START.sub('[', text)}\n</paperclip-memory>"


def strip_fences(text: str) -> str:
    """Remove every fenced block, and keep the text around it.

    Blocks nest. An unclosed block reaches to the end of the text; of a closing marker without an opening one, only the
    marker is removed. Quoting that surrounds nothing (`>`, backticks, list marks) is removed too.
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
