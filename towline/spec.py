"""The job and its tasks as validated models; the one place that says what a valid job is.

Used by the command line on YAML and by the workflow on whatever a Temporal client sent, so it is deterministic
and reads
nothing but its input.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from towline.errors import InvalidJob
from towline.problems import Path, Problem, bounded, kind_of, quote, show, unknown_key
from towline.resources import Alternative, JobRecovery, Model, Resources

LARGEST_SCRIPT = 512 * 1024
LARGEST_ENV = 128 * 1024 - 1  # one string of Linux's environment holds 131072 bytes: name, "=", value, NUL
LARGEST_JOB = 1536 * 1024
MOST_TASKS = 5000

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_RESERVED_PREFIXES = ("TOWLINE_", "SKYPILOT_")
_SHELLS_OWN = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})

NOT_SUPPORTED = {
    "task": {
        "workdir", "file_mounts", "secrets", "storage_mounts", "service", "config", "experimental", "inputs", "outputs",
        "event_callback", "pool", "volumes", "estimated", "num_jobs", "api_server",
    },
    "resources": {
        "disk_tier", "network_tier", "accelerator_args", "local_disk", "job_queue", "tpu_vm", "capabilities",
        "spot_recovery", "volumes",
    },
    "job": {"workdir", "secrets", "config"},
}  # fmt: skip
"""Keys that SkyPilot has and this version refuses by name."""


def _script(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"must be a string of commands, not {kind_of(value)}; quote it")
    if "\0" in value:
        raise ValueError("must not contain a NUL byte")
    size = len(_encoded(value))
    if size > LARGEST_SCRIPT:
        raise ValueError(f"is too large: {size} bytes, at most {LARGEST_SCRIPT}; put the code in a file on the node")
    return value if value.strip() else None


def _name(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind_of(value)}; quote it")
    if not _NAME.match(value):
        raise ValueError(f"must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit, not {quote(value)}")
    return value


def _envs(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to strings, not {kind_of(value)}")
    return value


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("contains half of a surrogate pair, which is no character") from None


class TaskSpec(Model):
    """One task. `name` is filled in by the job when it is absent."""

    name: Annotated[str | None, BeforeValidator(_name)] = None
    num_nodes: int = 1
    setup: Annotated[str | None, BeforeValidator(_script)] = None
    run: Annotated[str | None, BeforeValidator(_script)] = None
    envs: Annotated[dict[str, str], BeforeValidator(_envs)] = Field(default_factory=dict)
    resources: Annotated[Resources, BeforeValidator(lambda value: {} if value is None else value)] = Field(
        default_factory=Resources
    )


class JobSpec(Model):
    """A job: its name and its tasks in order, each with a name."""

    name: Annotated[str | None, BeforeValidator(_name)] = None
    tasks: list[TaskSpec]

    @classmethod
    def parse(cls, raw: object) -> JobSpec:
        """The job in `raw`, `{"name": ..., "tasks": [...]}`. Raises InvalidJob with every problem at once, whatever
        `raw` is."""
        spec, problems = check(raw)
        if spec is None:
            raise InvalidJob([show(problem) for problem in problems])
        return spec

    def to_input(self) -> dict[str, Any]:
        """The workflow's argument: plain JSON, without what was not said."""
        return self.model_dump(mode="json", exclude_unset=True)


def check(raw: object) -> tuple[JobSpec | None, list[Problem]]:
    """The job, or all that is wrong with it."""
    if not isinstance(raw, dict):
        return None, [Problem((), f'a job must be a mapping {{"name": ..., "tasks": [...]}}, not {kind_of(raw)}')]
    problems = _across(raw)
    spec = None
    try:
        spec = JobSpec.model_validate(raw)
    except ValidationError as error:
        problems = [*_of_validation(error), *problems]
    if not problems and spec:
        size = len(json.dumps(spec.to_input()))
        if size > LARGEST_JOB:
            problems = [Problem((), f"the job is too large: {size} bytes as JSON, at most {LARGEST_JOB}")]
    if problems or spec is None:
        return None, bounded(problems)
    return _with_names(spec), []


def _with_names(spec: JobSpec) -> JobSpec:
    job = spec.name or (spec.tasks[0].name if len(spec.tasks) == 1 else None) or "job"
    tasks = [
        task
        if task.name
        else TaskSpec.model_validate({**task.model_dump(exclude_unset=True), "name": f"{job}-{index}"})
        for index, task in enumerate(spec.tasks)
    ]
    return JobSpec(name=job, tasks=tasks)


def _across(raw: dict[Any, Any]) -> list[Problem]:
    """What no single field can tell: found on the raw input, so that it is told together with the rest."""
    tasks = raw.get("tasks")
    if tasks is not None and not isinstance(tasks, list):
        return []
    if not tasks:
        return [Problem(("tasks",), "a job needs at least one task")] if "tasks" in raw else []
    if len(tasks) > MOST_TASKS:
        return [Problem(("tasks",), f"a job has at most {MOST_TASKS} tasks, not {len(tasks)}")]
    problems: list[Problem] = []
    first_of: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if not isinstance(task, dict):
            continue
        problems += _across_task(("tasks", index), task)
        name = task.get("name")
        if isinstance(name, str) and first_of.setdefault(name, index) != index:
            text = f"task {first_of[name] + 1} is called {quote(name)} too; names must differ"
            problems.append(Problem(("tasks", index, "name"), text))
    return problems


def _across_task(path: Path, task: dict[Any, Any]) -> list[Problem]:
    problems = []
    if not any(isinstance(task.get(key), str) and task[key].strip() for key in ("setup", "run")) and not any(
        task.get(key) is not None and not isinstance(task[key], str) for key in ("setup", "run")
    ):
        problems.append(Problem(path, "has neither run nor setup, so there is nothing to do; add run"))
    num_nodes = task.get("num_nodes")
    if isinstance(num_nodes, int) and not isinstance(num_nodes, bool) and num_nodes != 1:
        text = "several nodes are not supported in this version" if num_nodes > 1 else "must be 1"
        problems.append(Problem((*path, "num_nodes"), text))
    if isinstance(task.get("envs"), dict):
        problems += _across_envs((*path, "envs"), task["envs"])
    if isinstance(task.get("resources"), dict):
        problems += _across_resources((*path, "resources"), task["resources"])
    return problems


def _across_envs(path: Path, envs: dict[Any, Any]) -> list[Problem]:
    problems = []
    for name, value in envs.items():
        text = _env_problem(name, value)
        if text:
            problems.append(Problem((*path, str(name)), text))
    return problems


def _env_problem(name: Any, value: Any) -> str | None:
    if not isinstance(name, str) or not _ENV_NAME.match(name):
        return "is no name of an environment variable: letters, digits and _, not beginning with a digit"
    if name.startswith(_RESERVED_PREFIXES):
        return "is set by Towline itself; choose another name"
    if name in _SHELLS_OWN:
        return "belongs to the shell and cannot be set; choose another name"
    if value is None:
        return f"has no value; give it with --env {name}=VALUE"
    if not isinstance(value, str):
        return f"must be a string, not {kind_of(value)}; quote it"
    if "\0" in value:
        return "must not contain a NUL byte"
    try:
        size = len(name) + 1 + len(_encoded(value))
    except ValueError as error:
        return str(error)
    return f"is too large: {size} bytes, at most {LARGEST_ENV}" if size > LARGEST_ENV else None


def _across_resources(path: Path, resources: dict[Any, Any]) -> list[Problem]:
    problems = []
    where = [key for key in ("cloud", "region", "zone") if resources.get(key) is not None]
    if resources.get("infra") is not None and where:
        problems.append(Problem((*path, where[0]), f"cannot stand beside infra; say {where[0]} there"))
    if resources.get("any_of") is not None and resources.get("ordered") is not None:
        problems.append(Problem((*path, "ordered"), "cannot stand beside any_of; choose one"))
    return problems


def _of_validation(error: ValidationError) -> list[Problem]:
    problems = []
    for each in error.errors(include_url=False, include_context=True):
        path = tuple(part for part in each["loc"] if not _is_union_branch(part))
        if path[2:3] == ("envs",) and len(path) > 3:
            continue  # said by _across_envs, without the value
        problems.append(Problem(path, _words(each, path)))
    return problems


def _is_union_branch(part: str | int) -> bool:
    return isinstance(part, str) and (
        part in ("str", "int", "bool", "[key]") or part.startswith(("dict[", "function-"))
    )


def _words(each: Any, path: Path) -> str:
    kind = each["type"]
    if kind == "extra_forbidden":
        return _of_unknown_key(path)
    if kind == "value_error":
        return str(each["ctx"]["error"])
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"must be {each['ctx']['expected']}, not {quote(each['input'])}"
    if kind in ("greater_than_equal", "less_than_equal"):
        return str(each["msg"]).lower()
    wanted = _WANTED.get(kind)
    return f"must be {wanted}, not {kind_of(each['input'])}" if wanted else str(each["msg"])


_WANTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _of_unknown_key(path: Path) -> str:
    key = str(path[-1])
    place, known = _keys_at(path[:-1])
    if key in NOT_SUPPORTED.get(place, ()):
        return "is not supported in this version"
    return unknown_key(key, known)


def _keys_at(path: Path) -> tuple[str, set[str]]:
    """Which mapping a path leads to, and the keys it may have."""
    if not path:
        return "job", set(JobSpec.model_fields)
    if path[-1] == "job_recovery":
        return "job_recovery", set(JobRecovery.model_fields)
    if path[-1] == "resources":
        return "resources", set(Resources.model_fields)
    if isinstance(path[-1], int) and len(path) > 2:
        return "resources", set(Alternative.model_fields)
    return "task", set(TaskSpec.model_fields)
