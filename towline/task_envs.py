"""What names and values `envs` may have. Values are never repeated: they may be secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from towline.plain_json import is_text
from towline.problems import kind_of

LARGEST_ENV = 128 * 1024 - 1  # one string of Linux's environment holds 131072 bytes: name, "=", value, NUL

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_RESERVED_PREFIXES = ("TOWLINE_", "SKYPILOT_")
_SHELLS_OWN = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


def env_problems(envs: Mapping[Any, Any]) -> dict[str, str]:
    """What is wrong, by name."""
    found = {str(name): name_problem(name) or value_problem(name, value) for name, value in envs.items()}
    return {name: problem for name, problem in found.items() if problem}


def name_problem(name: Any) -> str | None:
    """What is wrong with the name of a variable, if anything."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "is no name of an environment variable: letters, digits and _, not beginning with a digit"
    if name.startswith(_RESERVED_PREFIXES):
        return "begins with TOWLINE_ or SKYPILOT_, which Towline keeps for its own; choose another name"
    if name in _SHELLS_OWN:
        return "belongs to the shell and cannot be set; choose another name"
    return None


def value_problem(name: str, value: Any) -> str | None:
    """What is wrong with its value, if anything."""
    if value is None:
        return f"has no value; give it with --env {name}=VALUE"
    if not isinstance(value, str):
        return f"must be a string, not {kind_of(value)}; quote it"
    if "\0" in value:
        return "must not contain a NUL byte"
    if not is_text(value):
        return "is not valid Unicode text"
    size = len(name) + 1 + len(value.encode("utf-8"))
    return f"is too large: {size} bytes with its name, at most {LARGEST_ENV}" if size > LARGEST_ENV else None
