"""Writes what is made from the models: a JSON Schema and an example of each message, and the AsyncAPI document."""

import json
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import CoreSchema

from schemas.asyncapi import document
from schemas.events import EVENT_TYPES
from schemas.recalls import RecallRecord
from schemas.samples import RECALL, samples

Json = dict[str, Any]
MODELS: dict[str, type[BaseModel]] = {**EVENT_TYPES, RECALL: RecallRecord}
HERE = Path(__file__).parent


def files() -> dict[str, str]:
    """All generated files: their text by their path in the directory."""
    examples = samples()
    found = {f"{name}.schema.json": _json(json_schema(name)) for name in MODELS}
    found |= {f"examples/{name}.json": _json(examples[name]) for name in MODELS}
    found["asyncapi.yaml"] = _yaml(asyncapi())
    return found


def stale(directory: Path = HERE) -> list[Path]:
    """Generated files that are missing there, differ, or are there and should not be."""
    expected = {directory / name: text for name, text in files().items()}
    there = {*directory.glob("*.schema.json"), *directory.glob("examples/*.json")}
    differ = [path for path, text in expected.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return sorted({*differ, *(there - set(expected))})


def write(directory: Path = HERE) -> list[Path]:
    """Write the generated files that are stale, and remove those that should not be there; the paths that changed."""
    changed, texts = stale(directory), files()
    for path in changed:
        name = path.relative_to(directory).as_posix()
        if name in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def json_schema(name: str) -> Json:
    """The JSON Schema (2020-12) of an event type's messages, or of `recall`."""
    schema = MODELS[name].model_json_schema(by_alias=True, schema_generator=_Plain)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"{name}.schema.json"}
    return head | _wire_names(schema)


def asyncapi() -> Json:
    """The AsyncAPI document."""
    template = "#/components/schemas/{model}"
    pairs = [(model, "validation") for model in MODELS.values()]
    _, definitions = models_json_schema(pairs, by_alias=True, ref_template=template, schema_generator=_Plain)  # type: ignore[arg-type]
    return document(dict(EVENT_TYPES), _wire_names(definitions["$defs"]), samples())


class _Plain(GenerateJsonSchema):
    """Without a title for each field: it would only repeat the name."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # noqa: ARG002
        return False


def _wire_names(schema: Json) -> Json:
    """The schema with the models' own docstrings naming fields as the wire does."""
    fields = {field for model in _all_models() for field in model.model_fields}

    def rename(match: re.Match[str]) -> str:
        return f"`{to_camel(match[1])}`" if match[1] in fields else match[0]

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: re.sub(r"`([a-z_]+)`", rename, each) if key == "description" and isinstance(each, str) else walk(each)
            for key, each in value.items()
        }

    renamed: Json = walk(schema)
    return renamed


def _all_models(root: type[BaseModel] = BaseModel) -> set[type[BaseModel]]:
    below = {model for model in root.__subclasses__() if model.__module__.startswith("schemas.")}
    return below.union(*(_all_models(model) for model in below))


def _yaml(value: Json) -> str:
    plain = json.loads(json.dumps(value))  # shared parts become parts of their own: no anchors
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)
    return text


def _json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
