"""`$NAME` and `${NAME}` in `workdir` and `file_mounts`, replaced by the values of the task's `envs`. Pure.

As in SkyPilot: a name that is no variable of `envs` stays as it is written, also `$HOME`, and nothing is read from the
caller's environment. Values of `secrets` are never put in: what results is shown, logged and kept in the job's history.
`setup` and `run` are left to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


class SameKey(ValueError):
    """Two keys of a mapping come to the same one; `str()` says which."""


def substitute(value: Any, envs: Mapping[str, str]) -> Any:
    """`value` (strings, lists and mappings of them, anything else as it is) with the references in its strings, keys
    included, replaced. What a variable's value itself refers to is not looked at. Raises SameKey."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: envs.get(match[1] or match[2], match[0]), value)
    if isinstance(value, list):
        return [substitute(item, envs) for item in value]
    if isinstance(value, dict):
        return _mapping(value, envs)
    return value


def _mapping(value: dict[Any, Any], envs: Mapping[str, str]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, item in value.items():
        shown = substitute(key, envs)
        if shown in result:
            raise SameKey(f"two keys come to {shown!r} with the values of envs")
        result[shown] = substitute(item, envs)
    return result
