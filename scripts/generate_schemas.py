"""Writes a JSON Schema for each model in `schemas/`: `python -m scripts.generate_schemas`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from schemas.events import EVENT_TYPES
from schemas.recalls import RecallRecord

Json = dict[str, Any]
MODELS: dict[str, type[BaseModel]] = {**EVENT_TYPES, "recall": RecallRecord}
DIRECTORY = Path(__file__).parents[1] / "schemas"
SUFFIX = ".schema.json"


def stale(directory: Path = DIRECTORY) -> list[Path]:
    """Generated files in `directory` that are missing, differ from the models, or belong to no model."""
    expected = {directory / f"{name}{SUFFIX}": text(name) for name in MODELS}
    differing = {
        path for path, content in expected.items() if not path.is_file() or path.read_text(encoding="utf-8") != content
    }
    return sorted(differing | (set(directory.glob(f"*{SUFFIX}")) - set(expected)))


def write(directory: Path = DIRECTORY) -> list[Path]:
    """Write stale files and remove those that belong to no model; returns the paths that changed."""
    changed = stale(directory)
    for path in changed:
        name = path.name.removesuffix(SUFFIX)
        if name in MODELS:
            path.write_text(text(name), encoding="utf-8")
        else:
            path.unlink()
    return changed


def text(name: str) -> str:
    """The file of a model."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"


def json_schema(name: str) -> Json:
    """The JSON Schema (2020-12) of an event type's messages, or of `recall`."""
    schema = MODELS[name].model_json_schema(by_alias=True, schema_generator=_WithoutFieldTitles)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"{name}{SUFFIX}"}
    return head | _wire_names(schema)


class _WithoutFieldTitles(GenerateJsonSchema):
    """A field's title would only repeat its name."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # noqa: ARG002
        return False


def _wire_names(schema: Json) -> Json:
    """The schema with fields in descriptions named as on the wire; the models' docstrings use Python's names."""
    fields = {field for model in _models() for field in model.model_fields}

    def rename(match: re.Match[str]) -> str:
        return f"`{to_camel(match[1])}`" if match[1] in fields else match[0]

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: re.sub(r"`([a-z_]+)`", rename, item) if key == "description" and isinstance(item, str) else walk(item)
            for key, item in value.items()
        }

    renamed: Json = walk(schema)
    return renamed


def _models(root: type[BaseModel] = BaseModel) -> set[type[BaseModel]]:
    below = {model for model in root.__subclasses__() if model.__module__.startswith("schemas.")}
    return below.union(*(_models(model) for model in below))


if __name__ == "__main__":
    for path in write():
        sys.stdout.write(f"wrote {path}\n")
