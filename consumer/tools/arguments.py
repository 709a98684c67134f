"""What the tools take: the schema that agents are shown, and refusals in words for what does not fit it."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from consumer.memory.sanitize import mend
from consumer.tools.credentials import Refused

MAX_QUERY = 8_000
"""Characters; a recall uses the first 2,000."""
MAX_CONTENT = 100_000
"""Characters of one memory."""


class Arguments(BaseModel):
    """Arguments of a tool. There is none that could name another agent, company or bank."""

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
            "false: give what was recalled for this run at its start, if anything was."
        ),
    )


class RetainArguments(Arguments):
    """Arguments of `hindsight_retain`."""

    content: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT)] = Field(
        description="The fact, decision or lesson, complete in itself: who, what, why, with names and dates."
    )


def read(model: type[A], given: Mapping[str, Any] | None) -> A:
    """The arguments of a call.

    Raises:
        Refused: they do not fit; says which and why, and quotes no value.
    """
    mended = {mend(name): mend(value) if isinstance(value, str) else value for name, value in (given or {}).items()}
    try:
        return model.model_validate(mended)
    except ValidationError as error:
        raise Refused(" ".join(_words(each, model) for each in error.errors()[:3]), 400) from None


def _words(error: ErrorDetails, model: type[Arguments]) -> str:
    name = str(error["loc"][0])[:40] if error["loc"] else "?"
    known = ", ".join(model.model_fields)
    match error["type"]:
        case "extra_forbidden":
            return f"There is no argument {name!r} (there is: {known}); memory is always your own."
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
