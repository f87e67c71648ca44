"""YAML text to a job, strictly, with the file, line and key path of everything that is wrong. The only door to
PyYAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import yaml

from towline.errors import InvalidJob
from towline.problems import Path, Problem, quote, show
from towline.spec import JobSpec, check

LARGEST_FILE = 4 * 1024 * 1024
MOST_NODES = 100_000
DEEPEST = 40

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({_STANDARD + "str", _STANDARD + "timestamp"})
_VALUE_TAGS = frozenset({_STANDARD + kind for kind in ("int", "float", "bool", "null")})
_HEADER_KEYS = frozenset({"name", "execution"})


def load_job(data: bytes, source: str, *, name: str | None = None, envs: Mapping[str, str] | None = None) -> JobSpec:
    """The job in the YAML `data`, called `name` or what it or its file says, with `envs` laid over every task's.

    Raises InvalidJob with one line per problem, `SOURCE:LINE: KEY.PATH: what is wrong`.
    """
    reading = _Reading(source)
    documents = reading.documents(data)
    raw, line_of = _job(documents, source, name, envs or {}, reading)
    spec, problems = check(raw)
    lines = [*reading.problems, *((line_of(problem.path), show(problem)) for problem in problems)]
    if lines or spec is None:
        raise InvalidJob([f"{source}:{line}: {text}" for line, text in sorted(dict.fromkeys(lines))])
    return spec


def load_mapping(data: bytes, source: str) -> dict[str, Any]:
    """The one mapping in the YAML `data`, read as strictly as a job; empty when there is nothing in it."""
    reading = _Reading(source)
    documents = [value for value, _ in reading.documents(data)]
    if reading.problems:
        raise InvalidJob([f"{source}:{line}: {text}" for line, text in sorted(reading.problems)])
    if not documents:
        return {}
    if len(documents) > 1 or not isinstance(documents[0], dict):
        raise InvalidJob([f"{source}:1: must be one mapping"])
    return documents[0]


class _Reading:
    """One pass over a YAML text: plain values, the line of each key path, and the problems of the text itself."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[tuple[int, str]] = []
        self._nodes = 0

    def documents(self, data: bytes) -> list[tuple[Any, dict[Path, int]]]:
        """The documents that hold anything, each with the line of every key path in it."""
        found = []
        for node in self._composed(_text(data, self.source)):
            lines: dict[Path, int] = {}
            value = self._value(node, (), lines, depth=0)
            if value is not None:
                found.append((value, lines))
        return found

    def _composed(self, text: str) -> Iterator[yaml.Node]:
        try:
            for node in yaml.compose_all(text, Loader=_Loader):
                if node is not None:
                    yield node
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise InvalidJob([f"{self.source}:{mark.line + 1 if mark else 1}: {_syntax(error)}"]) from None
        except yaml.YAMLError as error:
            raise InvalidJob([f"{self.source}:1: {' '.join(str(error).split())}"]) from None
        except RecursionError:
            raise InvalidJob([f"{self.source}:1: is nested too deeply"]) from None

    def _value(self, node: yaml.Node, path: Path, lines: dict[Path, int], depth: int) -> Any:
        line = node.start_mark.line + 1
        lines.setdefault(path, line)
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > DEEPEST:
            what = "is nested too deeply" if depth > DEEPEST else "holds too many values; are aliases multiplied?"
            raise InvalidJob([f"{self.source}:{line}: {what}"])
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, lines, depth)
        if isinstance(node, yaml.SequenceNode):
            self._refuse_tag(node, path, "seq")
            return [self._value(item, (*path, index), lines, depth + 1) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, lines: dict[Path, int], depth: int) -> dict[str, Any]:
        self._refuse_tag(node, path, "map")
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _STANDARD + "merge":
                merged = {**self._merge(value_node, path, lines, depth), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append((line, f"{_at(path)}a key must be a string, not a list or mapping"))
                continue
            key = str(key_node.value)
            if key in own:
                first = lines[(*path, key)]
                self.problems.append((line, f"{_at((*path, key))}is given twice; first in line {first}"))
                continue
            lines[(*path, key)] = line
            own[key] = self._value(value_node, (*path, key), lines, depth + 1)
        return {**merged, **own}

    def _merge(self, node: yaml.Node, path: Path, lines: dict[Path, int], depth: int) -> dict[str, Any]:
        """What `<<` brings in: a mapping, or a list of them, the first winning."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Any] = {}
        for each in sources:
            if not isinstance(each, yaml.MappingNode):
                self.problems.append(
                    (each.start_mark.line + 1, f"{_at(path)}<< needs a mapping, or a list of mappings")
                )
                continue
            found = {**self._value(each, path, lines, depth + 1), **found}
        return found

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        if node.tag in _TEXT_TAGS or (_within_envs(path) and node.tag in _VALUE_TAGS and not _is_null(node)):
            return node.value  # in envs what is written counts: 007, on and 1.0 stay as they are
        if node.tag in _VALUE_TAGS:
            return self._plain(node, path)
        self._refuse_tag(node, path, "str")
        return None

    def _plain(self, node: yaml.Node, path: Path) -> Any:
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)
        except (ValueError, yaml.YAMLError):
            self.problems.append((node.start_mark.line + 1, f"{_at(path)}cannot be read as {node.tag.split(':')[-1]}"))
            return None

    def _refuse_tag(self, node: yaml.Node, path: Path, kind: str) -> None:
        if node.tag != _STANDARD + kind:
            shown = node.tag.replace(_STANDARD, "!!")
            self.problems.append((node.start_mark.line + 1, f"{_at(path)}the tag {quote(shown)} is not allowed"))


def _job(
    documents: list[tuple[Any, dict[Path, int]]],
    source: str,
    name: str | None,
    envs: Mapping[str, str],
    reading: _Reading,
) -> tuple[dict[str, Any], Any]:
    """The documents as the workflow's argument, and a function from key paths to lines."""
    header: dict[str, Any] = {}
    if documents and isinstance(documents[0][0], dict) and set(documents[0][0]) <= _HEADER_KEYS:
        header, lines = documents.pop(0)
        _check_execution(header, lines, reading)
    tasks = [_with_envs(value, envs) for value, _ in documents]
    own = tasks[0].get("name") if len(tasks) == 1 and isinstance(tasks[0], dict) else None
    raw = {"name": name or header.get("name") or own or _from_file(source), "tasks": tasks}

    def line_of(path: Path) -> int:
        if path[:1] != ("tasks",) or len(path) < 2 or not documents:
            return 1
        lines, rest = documents[int(path[1])][1], path[2:]
        return next(lines[rest[:cut]] for cut in range(len(rest), -1, -1) if rest[:cut] in lines)

    return raw, line_of


def _check_execution(header: dict[str, Any], lines: dict[Path, int], reading: _Reading) -> None:
    execution = header.get("execution", "serial")
    if execution not in (None, "serial"):
        text = f"execution: {quote(execution)} is not supported in this version; only serial is"
        reading.problems.append((lines[("execution",)], text))


def _with_envs(task: Any, envs: Mapping[str, str]) -> Any:
    if not envs or not isinstance(task, dict):
        return task
    own = task.get("envs")
    if own is not None and not isinstance(own, dict):
        return task
    return {**task, "envs": {**(own or {}), **envs}}


def _from_file(source: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePath(source).stem).strip("-_.")
    return stem[:64] or "job"


def _text(data: bytes, source: str) -> str:
    if len(data) > LARGEST_FILE:
        raise InvalidJob([f"{source}:1: is too large: {len(data)} bytes, at most {LARGEST_FILE}"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidJob([f"{source}:{line}: is not UTF-8 text (byte {error.start})"]) from None
    return text.replace("\r\n", "\n")


def _syntax(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's words on one line; a tab, the commonest slip, in clearer ones."""
    problem = str(error.problem or error)
    if "'\\t'" in problem or "tab" in problem:
        return "a tab cannot indent in YAML; use spaces"
    context = f"{error.context}: " if error.context else ""
    return f"YAML cannot be read: {context}{problem}"


def _within_envs(path: Path) -> bool:
    return len(path) == 2 and path[0] == "envs"


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == _STANDARD + "null")


def _at(path: Path) -> str:
    shown = show(Problem(path, ""))
    return shown.strip().rstrip(":") + ": " if path else ""
