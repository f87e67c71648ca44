"""What a task hands on: read from what it wrote, and given to later tasks."""

from __future__ import annotations

import pytest

from towline.outputs import LARGEST_FILE, Outputs, output_variables, read_outputs

TABLE = [
    (b"", {}, ""),
    (b"a=1\n", {"a": "1"}, ""),
    (b"a=1", {"a": "1"}, ""),
    (b"a=1\r\nb=2\r\n", {"a": "1", "b": "2"}, ""),
    (b"\n  \na=1\n\n", {"a": "1"}, ""),
    (b"a=1\na=2\n", {"a": "2"}, ""),
    (b"a=\n", {"a": ""}, ""),
    (b"a= x = y \n", {"a": " x = y "}, ""),
    ("a=naïve 🚢\n".encode(), {"a": "naïve 🚢"}, ""),
    (b"best.model-path_1=/x\n", {"best.model-path_1": "/x"}, ""),
    (b"a=1\nno equals sign\n", {"a": "1"}, "line 2 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"a=1\nsecond line\nthird\nb=2", {"a": "1", "b": "2"}, "lines 2, 3 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"two words=1\n=2\n", {}, "lines 1, 2 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"a=\xff\nb=2\n", {"b": "2"}, "line 1 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"a=x\0y\n", {}, "line 1 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"x" * 65 + b"=1\n", {}, "line 1 of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"bad\n" * 9, {}, "lines 1, 2, 3, 4, 5, ... of $TOWLINE_OUTPUT is not KEY=VALUE"),
    (b"t=SECRET\nu=1\n", {"u": "1"}, "line 1 of $TOWLINE_OUTPUT holds a secret"),
]


@pytest.mark.parametrize(("data", "values", "note"), TABLE)
def test_lines_are_values_or_said(data: bytes, values: dict[str, str], note: str) -> None:
    assert read_outputs(data, lambda line: b"SECRET" in line) == Outputs(values, note)


def test_of_a_file_that_is_too_large_nothing_is_kept_and_it_is_said() -> None:
    fits = b"a=" + b"x" * (LARGEST_FILE - 2)
    assert read_outputs(fits, lambda _: False).values == {"a": "x" * (LARGEST_FILE - 2)}
    found = read_outputs(fits + b"x", lambda _: False)
    assert found.values == {}
    assert found.note == "its outputs are not kept: $TOWLINE_OUTPUT is larger than 16384 bytes"


def test_names_are_made_safe_and_of_two_that_become_one_the_later_counts() -> None:
    tasks = [("train", {"loss": "0.1"}), ("eval-1", {"best.path": "/a"}), ("eval.1", {"BEST-PATH": "/b"})]
    assert output_variables(tasks) == {"TOWLINE_OUTPUT_TRAIN_LOSS": "0.1", "TOWLINE_OUTPUT_EVAL_1_BEST_PATH": "/b"}
