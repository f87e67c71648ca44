"""The job and its tasks as validated models; the one place that says what a valid job is.

Used by the command line on YAML and by the workflow on whatever a Temporal client sent, so it is deterministic and
reads nothing but its input.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from towline.contract import SealedSecret
from towline.errors import InvalidJob
from towline.job_recovery import JobRecovery
from towline.plain_json import json_problems
from towline.problems import MOST_PROBLEMS, Path, Problem, bounded, kind_of, quote, show
from towline.refusals import refusals
from towline.resources import Alternative, Resources, resources_problems
from towline.section import Section
from towline.task_envs import env_problems
from towline.task_secrets import Sealed, sealed_problems

__all__ = ["JobRecovery", "JobSpec", "Resources", "TaskSpec", "check", "is_name"]

LARGEST_SCRIPT = 512 * 1024
LARGEST_JOB = 1536 * 1024
MOST_TASKS = 5000
LONGEST_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_name(value: object) -> bool:
    """Whether a job or task may be called so."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _name(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind_of(value)}; quote it")
    if not is_name(value):
        raise ValueError(f"must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit, not {quote(value)}")
    return value


def _num_nodes(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {kind_of(value)}")
    if value != 1:
        raise ValueError("must be 1; several nodes are not supported in this version")
    return value


def _script(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"must be a string of commands, not {kind_of(value)}; quote it, or begin it with |")
    if "\0" in value:
        raise ValueError("must not contain a NUL byte")
    size = len(value.encode("utf-8"))
    if size > LARGEST_SCRIPT:
        raise ValueError(f"is too large: {size} bytes, at most {LARGEST_SCRIPT}; put the code in a file on the node")
    return value if value.strip() else None


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to strings, not {kind_of(value)}")
    return value


NameInput = Annotated[str, Field(pattern=f"^{_NAME.pattern}$")]
_EnvsInput = dict[str, str | int | float | bool | None]  # in YAML; what is written there becomes the string


class TaskSpec(Section):
    """One task. `name` is filled in by the job when it is absent."""

    name: Annotated[str | None, BeforeValidator(_name, json_schema_input_type=NameInput)] = None
    num_nodes: Annotated[int, BeforeValidator(_num_nodes, json_schema_input_type=Literal[1])] = 1
    setup: Annotated[str | None, BeforeValidator(_script, json_schema_input_type=str)] = None
    run: Annotated[str | None, BeforeValidator(_script, json_schema_input_type=str)] = None
    envs: Annotated[dict[str, str], BeforeValidator(_mapping, json_schema_input_type=_EnvsInput)] = Field(
        default_factory=dict
    )
    secrets: Annotated[dict[str, Sealed], BeforeValidator(_mapping, json_schema_input_type=_EnvsInput)] = Field(
        default_factory=dict
    )
    resources: Resources = Field(default_factory=Resources)

    @property
    def sealed_secrets(self) -> dict[str, SealedSecret]:
        """The secrets as messages carry them."""
        return {name: SealedSecret(each.sealed, each.key) for name, each in self.secrets.items()}


class JobSpec(Section):
    """A job: its name and its tasks in order, each with a name."""

    name: Annotated[str, BeforeValidator(_name)] = "job"
    tasks: list[TaskSpec]

    @classmethod
    def parse(cls, raw: object) -> JobSpec:
        """The job in `raw`, `{"name": ..., "tasks": [...]}`. Raises InvalidJob with every problem at once, whatever
        `raw` is."""
        spec, problems = check(raw)
        if spec is None:
            raise InvalidJob(bounded(map(show, problems[: 2 * MOST_PROBLEMS])))
        return spec

    def to_input(self) -> dict[str, Any]:
        """The workflow's argument: plain JSON, without what was not said."""
        return self.model_dump(mode="json", exclude_unset=True)


def check(raw: object) -> tuple[JobSpec | None, list[Problem]]:
    """The job, or all that is wrong with it."""
    problems = json_problems(raw)
    if problems:
        return None, problems
    if not isinstance(raw, dict):
        return None, [Problem((), f'a job must be a mapping {{"name": ..., "tasks": [...]}}, not {kind_of(raw)}')]
    tasks = raw.get("tasks")
    if isinstance(tasks, list) and len(tasks) > MOST_TASKS:
        return None, [Problem(("tasks",), f"a job has at most {MOST_TASKS} tasks, not {len(tasks)}")]
    spec, problems = _validated(raw)
    problems += _across(tasks)
    if spec is None or problems:
        return None, problems
    return _with_names(spec)


def _validated(raw: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    try:
        return JobSpec.model_validate(raw), []
    except ValidationError as error:
        found = refusals(error, _SECTIONS)
        return None, [each for each in found if each.path[2:3] not in _VALUES_UNTOLD or len(each.path) == 3]


_VALUES_UNTOLD = (("envs",), ("secrets",))
_SECTIONS = {
    "job": frozenset(JobSpec.model_fields),
    "task": frozenset(TaskSpec.model_fields),
    "resources": frozenset(Resources.model_fields),
    "alternative": frozenset(Alternative.model_fields),
    "job_recovery": frozenset(JobRecovery.model_fields),
}


def _across(tasks: Any) -> list[Problem]:
    """What no single field can tell: found on the raw input, so that it is told together with the rest. Envs and
    secrets are here too, so that none of their values is ever told."""
    if not isinstance(tasks, list):
        return []
    if not tasks:
        return [Problem(("tasks",), "a job needs at least one task; add run or setup")]
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


def _across_task(path: Path, task: dict[str, Any]) -> list[Problem]:
    problems = []
    scripts = [task.get(key) for key in ("setup", "run")]
    if all(script is None or (isinstance(script, str) and not script.strip()) for script in scripts):
        problems.append(Problem(path, "has neither run nor setup, so there is nothing to do; add run"))
    if isinstance(task.get("envs"), dict):
        problems += [Problem((*path, "envs", name), text) for name, text in env_problems(task["envs"]).items()]
    if isinstance(task.get("secrets"), dict):
        found = sealed_problems(task["secrets"], task.get("envs"))
        problems += [Problem((*path, "secrets", name), text) for name, text in found.items()]
    if isinstance(task.get("resources"), dict):
        problems += resources_problems((*path, "resources"), task["resources"])
    return problems


def _with_names(spec: JobSpec) -> tuple[JobSpec | None, list[Problem]]:
    """The job with a name for every task, if it can be sent."""
    job = spec.name
    if "name" not in spec.model_fields_set and len(spec.tasks) == 1:
        job = spec.tasks[0].name or job
    given = {task.name for task in spec.tasks if task.name}
    tasks, problems = [], []
    for index, task in enumerate(spec.tasks):
        if task.name:
            tasks.append(task)
            continue
        name = f"{job[: LONGEST_NAME - 1 - len(str(index))]}-{index}"
        if name in given:
            text = f"has no name and would be called {quote(name)}, as another task is; give it a name"
            problems.append(Problem(("tasks", index), text))
        tasks.append(task.model_copy(update={"name": name}))
    named = JobSpec(name=job, tasks=tasks)
    size = 0 if problems else len(json.dumps(named.to_input()))
    if size > LARGEST_JOB:
        problems = [Problem((), f"the job is too large: {size} bytes as JSON, at most {LARGEST_JOB}")]
    return (None, problems) if problems else (named, [])
