"""The tools' arguments: the JSON Schema that agents see, and error messages for arguments that do not match it."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from consumer.memory.sanitize import strip_unencodable
from consumer.tools.credentials import ToolError

MAX_QUERY = 8_000
"""Characters; a recall uses the first 2,000."""
MAX_CONTENT = 100_000
"""Characters of one memory."""
MAX_ARGUMENTS = 10
"""Arguments of a call; more are refused before they are validated one by one."""


class Arguments(BaseModel):
    """Arguments of a tool. None of them can name another agent, company or bank."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


A = TypeVar("A", bound=Arguments)


class RecallArguments(Arguments):
    """Arguments of `hindsight_recall`."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY)] = Field(
        description="What you want to know, in plain words: a question, or the subject with its names."
    )
    fresh: bool = Field(
        default=False,
        description=(
            "true: search all of your memory for this query now. "
            "false: return what was recalled for this run at its start, if anything was."
        ),
    )


class RetainArguments(Arguments):
    """Arguments of `hindsight_retain`."""

    content: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT)] = Field(
        description="The fact, decision or lesson, complete in itself: who, what, why, with names and dates."
    )


def parse_arguments(model: type[A], raw: Mapping[str, Any] | None) -> A:
    """Validate the arguments of a call.

    Raises:
        ToolError: they do not match the schema; the message names the arguments but quotes no value.
    """
    if raw and len(raw) > MAX_ARGUMENTS:
        raise ToolError(f"There are too many arguments (valid: {', '.join(model.model_fields)}).", 400)
    cleaned = {
        strip_unencodable(name): strip_unencodable(value) if isinstance(value, str) else value
        for name, value in (raw or {}).items()
    }
    try:
        return model.model_validate(cleaned)
    except ValidationError as error:
        raise ToolError(" ".join(_message(details, model) for details in error.errors()[:3]), 400) from None


def _message(error: ErrorDetails, model: type[Arguments]) -> str:
    name = str(error["loc"][0])[:40] if error["loc"] else "?"
    match error["type"]:
        case "extra_forbidden":
            valid = ", ".join(model.model_fields)
            return f"Unknown argument {name!r} (valid: {valid}). The tools work on your own memory only."
        case "missing":
            return f"The argument {name!r} is missing."
        case "string_too_short":
            return f"The argument {name!r} is empty."
        case "string_too_long":
            return f"The argument {name!r} is longer than {error['ctx']['max_length']} characters."
        case "bool_type":
            return f"The argument {name!r} must be true or false."
        case _:
            return f"The argument {name!r} must be text."
