"""Whether a value from outside is JSON of a reasonable size: what comes first, so that nothing after it can be
surprised, however hostile the value."""

from __future__ import annotations

from typing import Any

from towline.problems import Path, Problem, kind_of

MOST_VALUES = 100_000
DEEPEST = 40
LARGEST_TEXT = 4 * 1024 * 1024


def json_problems(raw: object) -> list[Problem]:
    """What keeps `raw` from being plain JSON. Nothing of it is repeated: it may be a secret, or very large."""
    walk = _Walk()
    walk.visit(raw, ())
    return walk.too_much or walk.problems


class _Walk:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.too_much: list[Problem] = []
        self._values = 0
        self._text = 0

    def visit(self, value: Any, path: Path) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            self.too_much = [Problem((), f"holds more than {MOST_VALUES} values")]
        elif len(path) > DEEPEST:
            self.too_much = [Problem((), f"is nested more than {DEEPEST} deep")]
        if self.too_much:
            return
        if isinstance(value, str):
            self._string(value, path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.visit(item, (*path, index))
        elif isinstance(value, dict):
            self._mapping(value, path)
        elif not isinstance(value, bool | int | float | None):
            self.problems.append(Problem(path, f"must be plain JSON, not {kind_of(value)}"))

    def _mapping(self, value: dict[Any, Any], path: Path) -> None:
        for key, item in value.items():
            if not isinstance(key, str):
                self.problems.append(Problem(path, f"a key must be a string, not {kind_of(key)}"))
            elif not is_text(key):
                self.problems.append(Problem(path, "a key is not valid Unicode text"))
            else:
                self._text += len(key)
                self.visit(item, (*path, key))

    def _string(self, value: str, path: Path) -> None:
        self._text += len(value)
        if self._text > LARGEST_TEXT:
            self.too_much = [Problem((), f"holds more than {LARGEST_TEXT} characters of text")]
        elif not is_text(value):
            self.problems.append(Problem(path, "is not valid Unicode text"))


def is_text(value: str) -> bool:
    """Whether a string has an encoding: half of a surrogate pair has none."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
