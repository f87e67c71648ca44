"""Pydantic's findings in sentences for a person, with the right key where a wrong one is near."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from towline.problems import MOST_PROBLEMS, Path, Problem, kind_of, unknown_key

NOT_SUPPORTED = frozenset(
    {
        "accelerator_args", "api_server", "autoscaling", "capabilities", "config", "disk_tier", "estimated",
        "event_callback", "experimental", "file_mounts", "inputs", "job_queue", "local_disk", "network_tier",
        "num_jobs", "outputs", "pool", "runtime_version", "service", "spot_recovery", "storage",
        "storage_mounts", "tpu_name", "tpu_vm", "volume_mounts", "volumes", "workdir",
    }
)  # fmt: skip
"""Keys that SkyPilot has and this version refuses by name."""

_WANTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_ENCLOSING = {"task": "", "resources": "resources", "job_recovery": "resources.job_recovery"}

Sections = Mapping[str, frozenset[str]]
"""The keys of each kind of section: job, task, resources, alternative, job_recovery."""


def refusals(error: ValidationError, sections: Sections) -> list[Problem]:
    """One problem for each finding; not endlessly many."""
    found = error.errors(include_url=False)[: MOST_PROBLEMS * 4]
    return [Problem(each["loc"], _words(each, each["loc"], sections)) for each in found]


def _words(each: Any, path: Path, sections: Sections) -> str:
    kind = each["type"]
    if kind == "extra_forbidden":
        return _of_unknown_key(path, sections)
    if kind == "value_error":
        return str(each["ctx"]["error"])
    if kind == "missing":
        return f"is missing; add {path[-1]}"
    wanted = _WANTED.get(kind)
    return f"must be {wanted}, not {kind_of(each['input'])}" if wanted else f"is not valid ({kind})"


def _of_unknown_key(path: Path, sections: Sections) -> str:
    key, section = str(path[-1]), _section(path[:-1])
    if key in NOT_SUPPORTED or key.startswith("tpu"):
        return "is not supported in this version; remove it"
    if section == "alternative" and key in sections["resources"]:
        return "cannot be nested; write one list of alternatives"
    elsewhere = next((place for place, name in _ENCLOSING.items() if name and key in sections[place]), None)
    if elsewhere:
        return f"unknown key here; it belongs under {_ENCLOSING[elsewhere]}"
    if section not in ("job", "task") and key in sections["task"]:
        return "unknown key here; it belongs to the task, not under resources"
    return unknown_key(key, sections[section])


def _section(path: Path) -> str:
    """Which kind of section a path leads to."""
    if not path:
        return "job"
    if path[-1] in ("job_recovery", "resources"):
        return str(path[-1])
    return "alternative" if len(path) > 2 else "task"
