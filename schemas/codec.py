"""Converts between records' bytes and values.

Decoding takes what JSON can carry, lone surrogates included (pydantic's own JSON parser refuses them, and Paperclip's
`bodySnippet` holds them). Encoding is ASCII, so that they go out as they came in.
"""

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.events import EVENT_TYPES, Envelope

MAX_LEVELS = 100
"""Levels of JSON that `loads` keeps: far more than Paperclip's objects have, far fewer than Python can encode."""


def loads(body: bytes) -> tuple[Any, bool]:
    """Decode JSON of any depth: a value nested deeper than `MAX_LEVELS` becomes null.

    Returns:
        the value, and whether it was too deep.

    Raises:
        ValueError: the body is not JSON.
    """
    if not _is_deep(body):
        return json.loads(body), False
    return json.loads(_prune(body.decode("utf-8", "surrogatepass"))), True


def decode(value: bytes | None) -> dict[str, Any]:
    """The JSON object in a record's value.

    Raises:
        ValueError: it has none; the message says why and does not quote the value.
    """
    if value is None:
        raise ValueError("no value")
    try:
        decoded = _decode(value.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except _NotJsonError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(f"JSON integer of more than {sys.get_int_max_str_digits()} digits") from None
    if not isinstance(decoded, dict):
        raise ValueError(f"JSON {_kind(decoded)}, not an object")  # noqa: TRY004 - the bytes are wrong, not the caller
    return decoded


def parse(value: Mapping[str, Any]) -> Envelope:
    """The event that a decoded value is: of its type's own class; of `Envelope` itself if the type has no meaning here.

    Raises:
        ValueError: it is not the event that its `eventType` promises; the text names fields and kinds, never values.
            Also a field whose name has a lone surrogate: pydantic takes such text as a value only.
    """
    event_type = value.get("eventType")
    model = EVENT_TYPES.get(event_type, Envelope) if isinstance(event_type, str) else Envelope
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(_explain(detail) for detail in error.errors()[:5])) from None


def encode(value: BaseModel | Mapping[str, Any]) -> bytes:
    """ASCII JSON, compact, with the names of the wire; of a model, the fields that were set.

    Raises:
        ValueError: a number is not finite.
    """
    plain = value.model_dump(by_alias=True, exclude_unset=True) if isinstance(value, BaseModel) else value
    return _encode(plain).encode("ascii")


def _is_deep(body: bytes) -> bool:
    """Whether JSON has more than `MAX_LEVELS` levels, give or take a factor of two. Costs less than decoding it."""
    if body.count(b"[") + body.count(b"{") <= MAX_LEVELS:
        return False
    brackets = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    for _ in range(MAX_LEVELS):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return False
    return True


def _prune(text: str) -> str:
    """Replace values nested deeper than `MAX_LEVELS` by null. Text that is not JSON stays so."""
    kept: list[str] = []
    level = start = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in ("[", "{"):
            level += 1
            if level == MAX_LEVELS + 1:
                kept += text[start : token.start()], "null"
                start = len(text)
        elif token[0] in ("]", "}"):
            if level == MAX_LEVELS + 1:
                start = token.end()
            level -= 1
    kept.append(text[start:])
    return "".join(kept)


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern.decode() + r"|[\[\]{}]", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class _NotJsonError(ValueError):
    """Python's parser accepts this constant, but it is not JSON."""


def _refuse(constant: str) -> NoReturn:
    raise _NotJsonError(f"not JSON: {constant}")


# `json.loads` with an argument makes a decoder each time, and `json.dumps` an encoder.
_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return kinds.get(type(value), type(value).__name__)


def _explain(error: ErrorDetails) -> str:
    field = ".".join(str(part) for part in error["loc"]) or "a field's name"
    if error["type"] == "missing":
        return f"{field} is missing"
    why = "must be a UUID" if error["type"] == "string_pattern_mismatch" else error["msg"]
    return f"{field} is a {_kind(error['input'])}: {why}"
