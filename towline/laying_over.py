"""What is given beside the YAML, laid over its tasks: variables for all of them, and values of secrets, sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from towline.contract import SealedSecret
from towline.errors import UsageError
from towline.problems import Path, Problem
from towline.task_secrets import Seal, plain_problems


def _no_key(name: str, value: str) -> SealedSecret:
    raise UsageError(f"secret {name} cannot be sealed here")


@dataclass(frozen=True)
class SecretSource:
    """Where values of secrets come from: `given` ones are every task's and go before the file's; one that has no value
    in either is taken from `environment`. `seal` makes of them what may be sent. Values are not in its `repr`."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    seal: Seal = _no_key


def with_envs(task: Any, envs: Mapping[str, str]) -> Any:
    """The task with `envs` laid over its own."""
    if not envs or not isinstance(task, dict):
        return task
    own = task.get("envs")
    if own is not None and not isinstance(own, dict):
        return task
    return {**task, "envs": {**(own or {}), **envs}}


def with_secrets(task: Any, source: SecretSource) -> tuple[Any, list[Problem]]:
    """The task with its secrets sealed, and what is wrong with some of them; those are left out, so that no plain value
    goes further."""
    own = task.get("secrets") if isinstance(task, dict) else None
    if not isinstance(task, dict) or (own is None and not source.given) or not isinstance(own, dict | None):
        return task, []
    plain = {**(own or {}), **source.given}
    for name, value in plain.items():
        if value is None and name in source.environment:
            plain[name] = source.environment[name]
    found = plain_problems(plain, task.get("envs"))
    path: Path = ("secrets",)
    problems = [Problem((*path, name), text) for name, text in found.items()]
    sealed = {name: asdict(source.seal(name, value)) for name, value in plain.items() if name not in found}
    return {**task, "secrets": sealed}, problems
