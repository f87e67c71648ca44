"""YAML text to a job, strictly, with the file, line and key path of everything that is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from towline.errors import InvalidJob
from towline.laying_over import SecretSource, with_envs, with_secrets
from towline.problems import Path, Problem, bounded, quote, show
from towline.reading import Document, read
from towline.spec import LONGEST_NAME, JobSpec, check, is_name
from towline.task_envs import env_problems
from towline.task_secrets import plain_problems

_HEADER_KEYS = frozenset({"name", "execution"})


def load_job(
    data: bytes,
    source: str,
    *,
    name: str | None = None,
    envs: Mapping[str, str] | None = None,
    secrets: SecretSource | None = None,
) -> JobSpec:
    """The job in the YAML `data`, called `name` or what it or its file says, with `envs` laid over every task's and
    its secrets sealed.

    Raises InvalidJob with one line per problem, `SOURCE:LINE: KEY.PATH: what is wrong; what to do`, and UsageError when
    there is no key to seal with.
    """
    return _Job(read(data, source), source, name, envs or {}, secrets or SecretSource()).spec()


def load_mapping(data: bytes, source: str) -> dict[str, Any]:
    """The one mapping in the YAML `data`, read as strictly as a job; empty when there is nothing in it."""
    documents = read(data, source)
    problems = [_line(source, *each) for document in documents for each in document.problems]
    documents = [each for each in documents if each.value is not None]
    if len(documents) > 1 or any(not isinstance(each.value, dict) for each in documents):
        problems.append(f"{source}:1: must be one mapping")
    if problems:
        raise InvalidJob(bounded(problems))
    value: dict[str, Any] = documents[0].value if documents else {}
    return value


def _line(source: str, line: int, problem: Problem) -> str:
    return f"{source}:{line}: {show(problem)}"


class _Job:
    """What the documents of one file say, put together as the workflow's argument."""

    def __init__(
        self, documents: list[Document], source: str, name: str | None, envs: Mapping[str, str], secrets: SecretSource
    ) -> None:
        self._source = source
        self._given_name = name
        self._envs = envs
        self._secrets = secrets
        self._empty = [each for each in documents if each.value is None]
        said = [each for each in documents if each.value is not None]
        self._header = said.pop(0) if said and _is_header(said[0].value) else None
        self._tasks = said

    def spec(self) -> JobSpec:
        """The job; raises InvalidJob with all that is wrong with the text, with what was given beside it, and with
        the job."""
        arguments = self._problems_of_arguments()
        told = self._problems_of_text()
        raw, of_secrets = self._raw(lay_over=not arguments)
        told += [(self._line_of(each.path), each) for each in of_secrets]
        spec, problems = check(raw)
        places = {problem.path for _, problem in told}
        told += [(self._line_of(each.path), each) for each in problems if each.path not in places]
        lines = [_line(self._source, *each) for each in sorted(told, key=lambda each: each[0])]
        if spec is None or arguments or lines:
            raise InvalidJob(bounded([*arguments, *lines]))
        return spec

    def _raw(self, lay_over: bool) -> tuple[dict[str, Any], list[Problem]]:
        """What the workflow is to get, and what is wrong with the secrets, which are not sealed then."""
        secrets = self._secrets if lay_over else replace(self._secrets, given={})
        tasks: list[Any] = []
        problems: list[Problem] = []
        for index, document in enumerate(self._tasks):
            value = with_envs(document.value, self._envs) if lay_over else document.value
            task, found = with_secrets(value, secrets)
            tasks.append(task)
            problems += [Problem(("tasks", index, *each.path), each.text) for each in found]
        return {"name": self._name(), "tasks": tasks}, problems

    def _name(self) -> Any:
        if is_name(self._given_name):
            return self._given_name
        if self._header and self._header.value.get("name") is not None:
            return self._header.value["name"]
        only = self._tasks[0].value if len(self._tasks) == 1 else None
        if isinstance(only, dict) and is_name(only.get("name")):
            return only["name"]
        return _from_file(self._source)

    def _problems_of_arguments(self) -> list[str]:
        problems = [f"--env {show(Problem((name,), text))}" for name, text in env_problems(self._envs).items()]
        given = plain_problems(self._secrets.given, self._envs)
        problems += [f"--secret {show(Problem((name,), text))}" for name, text in given.items()]
        if self._given_name is not None and not is_name(self._given_name):
            wanted = "must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit"
            problems.append(f"--name: {wanted}, not {quote(self._given_name)}")
        return problems

    def _problems_of_text(self) -> list[tuple[int, Problem]]:
        found = [each for document in self._empty for each in document.problems]
        if self._header:
            found += [*self._header.problems, *_execution_problems(self._header)]
        for index, document in enumerate(self._tasks):
            found += [(line, Problem(("tasks", index, *at.path), at.text)) for line, at in document.problems]
        return found

    def _line_of(self, path: Path) -> int:
        if path[:1] == ("tasks",) and len(path) > 1:
            return self._tasks[int(path[1])].line_of(path[2:])
        return self._header.line_of(path) if self._header else 1


def _is_header(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and set(value) <= _HEADER_KEYS


def _execution_problems(header: Document) -> list[tuple[int, Problem]]:
    path: Path = ("execution",)
    execution = header.value.get("execution")
    if execution in (None, "serial"):
        return []
    text = f"{quote(execution)} is not supported in this version; write serial, or remove it"
    return [(header.line_of(path), Problem(path, text))]


def _from_file(source: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePath(source).stem).strip("-_.")
    return stem[:LONGEST_NAME] or "job"
