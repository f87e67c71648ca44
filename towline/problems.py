"""What is wrong with a job's input: places, and words for a person. Values of the input are never repeated at
length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MOST_PROBLEMS = 50
LONGEST_PROBLEM = 300

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `path` leads to it: `("tasks", 0, "resources", "cpus")`."""

    path: Path
    text: str


def show_path(path: Path) -> str:
    """The path as people write it: `tasks[0].resources.cpus`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += f".{_printable(part)}" if shown else _printable(part)
    return shown


def show(problem: Problem) -> str:
    """One line for a problem, bounded."""
    place = show_path(problem.path)
    line = f"{place}: {problem.text}" if place else problem.text
    return line if len(line) <= LONGEST_PROBLEM else line[: LONGEST_PROBLEM - 1] + "…"


def bounded(problems: Iterable[Problem]) -> list[Problem]:
    """At most MOST_PROBLEMS, with a word on how many more there are."""
    unique = list(dict.fromkeys(problems))
    if len(unique) <= MOST_PROBLEMS:
        return unique
    return [*unique[:MOST_PROBLEMS], Problem((), f"and {len(unique) - MOST_PROBLEMS} more problems")]


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; the keys here are {', '.join(names)}"


def kind_of(value: Any) -> str:
    """The type of a value in YAML's and JSON's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list | tuple | set | frozenset):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return f"a {type(value).__name__}"


def quote(value: Any) -> str:
    """A value of the input, short, on one line."""
    text = _printable(str(value))
    return f"'{text}'" if len(text) <= 40 else f"'{text[:39]}…'"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])
