"""Sanitizes text before it is sent to Hindsight."""

import re
import unicodedata

from consumer.memory import markers

_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")
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
