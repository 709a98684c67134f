"""What is taken out of a text before Hindsight gets it."""

import re
import unicodedata

from consumer.memory import markers

_BROKEN = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


def mend(text: str) -> str:
    """Take out what no UTF-8 or database can hold: lone surrogates and NUL."""
    return text if text.isascii() and "\0" not in text else _BROKEN.sub("", text)


def clean(text: str) -> str:
    """Mend a text and take out what our own tools served (`consumer.memory.markers`)."""
    return markers.strip(mend(text))


def blank(text: str | None) -> bool:
    """Whether nothing in it can be seen. Wider than Hindsight's check, which lets a zero-width space through."""
    return all(unicodedata.category(char) in _INVISIBLE for char in text or "")
