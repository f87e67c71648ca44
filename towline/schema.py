"""The JSON Schema of one document of the YAML, for editors; generated from the models that validate."""

from __future__ import annotations

from typing import Any, Literal

from towline.section import Section
from towline.spec import NameInput, TaskSpec

_ENV_NAMES = {"pattern": "^(?!TOWLINE_|SKYPILOT_)[A-Za-z_][A-Za-z0-9_]*$"}


class Header(Section):
    """The first of several documents, where it has nothing but these keys: names the job."""

    name: NameInput | None = None
    execution: Literal["serial"] | None = None


def json_schema() -> dict[str, Any]:
    """A schema that accepts every document that `towline validate` accepts, and refuses unknown keys and values of
    the wrong type."""
    task, header = TaskSpec.model_json_schema(), Header.model_json_schema()
    definitions = {**task.pop("$defs"), "Task": task, "Header": header}
    for each in definitions.values():
        each["properties"] = {key: _or_nothing(value) for key, value in each["properties"].items()}
    task["anyOf"] = [{"required": ["run"]}, {"required": ["setup"]}]
    for key in ("envs", "secrets"):
        task["properties"][key]["anyOf"][0]["propertyNames"] = _ENV_NAMES
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A document of a Towline job",
        "if": {"propertyNames": {"enum": list(Header.model_fields)}, "minProperties": 1},
        "then": {"$ref": "#/$defs/Header"},
        "else": {"$ref": "#/$defs/Task"},
        "$defs": definitions,
    }


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    """A key without a value counts as absent."""
    schema.pop("default", None)
    schema.pop("title", None)
    return {"anyOf": [schema, {"type": "null"}]}
