"""Small values that a task hands on: lines `KEY=VALUE` in the file $TOWLINE_OUTPUT, and what later tasks get of them.
Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from towline.plain_json import is_text

LARGEST_FILE = 16 * 1024
"""Bytes of $TOWLINE_OUTPUT; of a larger file nothing is handed on, rather than a part."""
LARGEST_TOTAL = 256 * 1024
"""Bytes, as JSON, of what all tasks of a job hand on together."""

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNSAFE = re.compile(r"[^A-Z0-9]")
_MOST_LINES_NAMED = 5


@dataclass(frozen=True)
class Outputs:
    """What a task hands on, and what was wrong with the rest, for a person; never a value."""

    values: dict[str, str]
    note: str = ""


def read_outputs(data: bytes, is_secret: Callable[[bytes], bool]) -> Outputs:
    """The outputs in the file's first bytes, which are one more than LARGEST_FILE when it is too large. The last line
    of a key counts. A line that is not `KEY=VALUE`, or holds a secret, is left out and said."""
    if len(data) > LARGEST_FILE:
        return Outputs({}, f"its outputs are not kept: $TOWLINE_OUTPUT is larger than {LARGEST_FILE} bytes")
    values: dict[str, str] = {}
    wrong: dict[str, list[int]] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line.strip():
            continue
        if is_secret(line):
            wrong.setdefault("holds a secret", []).append(number)
            continue
        key, equals, value = line.partition(b"=")
        text = _text(key), _text(value)
        if not equals or text[0] is None or text[1] is None or not _KEY.fullmatch(text[0]):
            wrong.setdefault("is not KEY=VALUE", []).append(number)
        else:
            values[text[0]] = text[1]
    return Outputs(values, "; ".join(_left_out(lines, why) for why, lines in wrong.items()))


def output_variables(tasks: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """The environment variables for what these tasks, in order, hand on: `TOWLINE_OUTPUT_<TASK>_<KEY>`. Where two come
    to the same name, the later one counts."""
    return {
        f"TOWLINE_OUTPUT_{_safe(name)}_{_safe(key)}": value for name, outputs in tasks for key, value in outputs.items()
    }


def size_of(outputs: Mapping[str, str]) -> int:
    """Bytes as JSON."""
    return len(json.dumps(dict(outputs))) if outputs else 0


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if "\0" not in text and is_text(text) else None


def _left_out(lines: list[int], why: str) -> str:
    shown = ", ".join(map(str, lines[:_MOST_LINES_NAMED])) + (", ..." if len(lines) > _MOST_LINES_NAMED else "")
    return f"line{'' if len(lines) == 1 else 's'} {shown} of $TOWLINE_OUTPUT {why}"


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name.upper())
