"""The JSON Schema of one task document of the YAML, for editors; generated from the models that validate."""

from __future__ import annotations

from typing import Any

from towline.resources import STRATEGIES
from towline.spec import TaskSpec

_NUMBER_OR_TEXT = {"type": ["number", "string", "null"]}
_WIDER = {
    # What the models take beside what they store: they convert before they check.
    "cpus": _NUMBER_OR_TEXT,
    "memory": _NUMBER_OR_TEXT,
    "disk_size": _NUMBER_OR_TEXT,
    "accelerators": {"type": ["string", "object", "array", "null"]},
    "ports": {"type": ["integer", "string", "array", "null"]},
    "labels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    "envs": {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
    },
    "recover_on_exit_codes": {"type": ["integer", "array", "null"], "items": {"type": "integer"}},
    "max_restarts_on_errors": {"type": ["integer", "string", "null"], "minimum": 0},
    "strategy": {"type": ["string", "null"]},
    "name": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"},
}


def json_schema() -> dict[str, Any]:
    """A schema that accepts every document that `towline validate` accepts, and refuses unknown keys and wrong
    types."""
    schema = TaskSpec.model_json_schema()
    definitions = schema["$defs"]
    for model in (schema, *definitions.values()):
        for name, wider in _WIDER.items():
            if name in model.get("properties", {}):
                model["properties"][name] = wider
    recovery = definitions["Resources"]["properties"]["job_recovery"]
    names = {"type": ["string", "null"], "description": f"one of {', '.join(STRATEGIES)}"}
    definitions["Resources"]["properties"]["job_recovery"] = {"anyOf": [_reference(recovery), names]}
    schema["properties"]["resources"] = {"anyOf": [{"$ref": "#/$defs/Resources"}, {"type": "null"}]}
    schema["properties"]["execution"] = {"enum": ["serial"]}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A task of a Towline job"
    return schema


def _reference(field: dict[str, Any]) -> dict[str, Any]:
    return {"$ref": field["$ref"]} if "$ref" in field else field["allOf"][0]
