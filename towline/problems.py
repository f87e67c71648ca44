"""What is wrong with a job's input: places, and words for a person. Values of the input are never repeated at
length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MOST_PROBLEMS = 50
LONGEST_PROBLEM = 300
LONGEST_VALUE = 40

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `path` leads to it: `("tasks", 0, "resources", "cpus")`."""

    path: Path
    text: str


def show(problem: Problem) -> str:
    """One line for a problem, bounded."""
    place = show_path(problem.path)
    return shorten(f"{place}: {problem.text}" if place else problem.text, LONGEST_PROBLEM)


def show_path(path: Path) -> str:
    """The path as people write it: `tasks[0].resources.cpus`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            key = shorten(part, LONGEST_VALUE)
            shown += f".{key}" if shown else key
    return shown


def bounded(lines: Iterable[str]) -> list[str]:
    """Each line once, and not too many of them."""
    unique = list(dict.fromkeys(lines))
    if len(unique) <= MOST_PROBLEMS:
        return unique
    return [*unique[: MOST_PROBLEMS - 1], "and more problems; mend these first"]


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; the keys here are {', '.join(names)}"


def kind_of(value: Any) -> str:
    """The type of a value in YAML's and JSON's words."""
    for kinds, words in _KINDS:
        if isinstance(value, kinds):
            return words
    return f"an object of type {type(value).__name__}"


_KINDS: tuple[tuple[Any, str], ...] = (
    (type(None), "nothing"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple, set, frozenset), "a list"),
    (dict, "a mapping"),
)


def quote(value: Any) -> str:
    """A value of the input, short, on one line; of what is no simple value only the kind."""
    if isinstance(value, str):
        return f"'{shorten(value, LONGEST_VALUE)}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**LONGEST_VALUE):
        return str(value)
    return kind_of(value)


def shorten(text: str, most: int) -> str:
    """At most `most` printable characters of the text."""
    shown = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
