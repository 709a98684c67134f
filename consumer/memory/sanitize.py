"""Sanitizes text before it is sent to Hindsight or printed."""

import re
import unicodedata

from consumer.memory import markers

_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


def strip_unencodable(text: str) -> str:
    """Remove lone surrogates and NUL: neither UTF-8 nor a database can hold them."""
    return text if text.isascii() and "\0" not in text else _UNENCODABLE.sub("", text)


def sanitize(text: str) -> str:
    """Remove what cannot be encoded, and memories that our own tools served (`consumer.memory.markers`)."""
    return markers.strip_fences(strip_unencodable(text))


def is_blank(text: str | None) -> bool:
    """Whether the text has no visible character. Stricter than Hindsight, which accepts a zero-width space."""
    return all(unicodedata.category(char) in _INVISIBLE for char in text or "")


def printable(text: str) -> str:
    """One line for a terminal: control characters, which could move the cursor or reorder the line, become `\ufffd`."""
    return _CONTROL.sub("\ufffd", " ".join(text.splitlines()) if "\n" in text else text)
