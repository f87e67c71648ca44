"""What `secrets` of a task may be: declared like `envs`, and on their way through Temporal only ever sealed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from towline.contract import SealedSecret
from towline.problems import kind_of
from towline.section import Section
from towline.task_envs import name_problem, value_problem

Seal = Callable[[str, str], SealedSecret]
"""Seals the value of the secret of that name."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_TEMPORAL_KEEPS_IT = "a plain value; the history of this job holds it now, so replace it, and submit it sealed"


class Sealed(Section):
    """A sealed value, `{"sealed": ..., "key": ...}`."""

    sealed: str
    key: str


def plain_problems(secrets: Mapping[Any, Any], envs: Any) -> dict[str, str]:
    """What is wrong with secrets as people write them, by name. Values are never repeated."""
    problems = {str(name): name_problem(name) or _plain_problem(str(name), value) for name, value in secrets.items()}
    problems.update(_in_both(secrets, envs))
    return {name: problem for name, problem in problems.items() if problem}


def sealed_problems(secrets: Mapping[Any, Any], envs: Any) -> dict[str, str]:
    """What is wrong with secrets as a Temporal client sends them, by name. Values are never repeated."""
    problems = {str(name): name_problem(name) or _sealed_problem(value) for name, value in secrets.items()}
    problems.update(_in_both(secrets, envs))
    return {name: problem for name, problem in problems.items() if problem}


def _in_both(secrets: Mapping[Any, Any], envs: Any) -> dict[str, str]:
    both = set(map(str, secrets)) & set(map(str, envs)) if isinstance(envs, dict) else set()
    return dict.fromkeys(sorted(both), "is in envs too; keep one of the two")


def _plain_problem(name: str, value: Any) -> str | None:
    if value is None:
        return f"has no value; give it with --secret {name}, in --secret-file, or as the variable {name} of yours"
    if value == "":
        return "is empty; a secret has a value"
    return value_problem(name, value)


def _sealed_problem(value: Any) -> str | None:
    if value is None:
        return "has no value; submit it sealed"
    if not isinstance(value, dict):
        words = _TEMPORAL_KEEPS_IT if isinstance(value, str) else kind_of(value)
        return f'must be sealed, {{"sealed": ..., "key": ...}}, not {words}'
    if set(value) != {"sealed", "key"}:
        return 'must have "sealed" and "key", and nothing else'
    for key, pattern in (("sealed", _BASE64), ("key", _KEY_ID)):
        if not isinstance(value[key], str) or not pattern.fullmatch(value[key]):
            return f'"{key}" is not what `towline` seals'
    return None
