"""References to envs in `workdir` and `file_mounts`."""

from __future__ import annotations

from typing import Any

import pytest

from towline.env_references import SameKey, substitute

ENVS = {"SIZE": "7", "NAME": "a b", "EMPTY": "", "OTHER": "$SIZE", "_x1": "y"}

TABLE: list[tuple[Any, Any]] = [
    ("plain", "plain"),
    ("${SIZE}", "7"),
    ("$SIZE", "7"),
    ("llama-${SIZE}b", "llama-7b"),
    ("llama-$SIZE/b", "llama-7/b"),
    ("$SIZEb", "$SIZEb"),  # another name
    ("$SIZE-$SIZE", "7-7"),
    ("${NAME}", "a b"),
    ("[$EMPTY]", "[]"),
    ("$_x1", "y"),
    ("$HOME/data", "$HOME/data"),
    ("${MISSING}", "${MISSING}"),
    ("$OTHER", "$SIZE"),
    ("${SIZE", "${SIZE"),
    ("$SIZE}", "7}"),
    ("${ SIZE }", "${ SIZE }"),
    ("$1 $$ $ ${}", "$1 $$ $ ${}"),
    ("$$SIZE", "$7"),
    ("${SIZE:-8}", "${SIZE:-8}"),
    ({"/m/$SIZE": "s3://b/$SIZE"}, {"/m/7": "s3://b/7"}),
    ({"/m": {"source": ["$SIZE", 7, None]}}, {"/m": {"source": ["7", 7, None]}}),
    (None, None),
    (3, 3),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), TABLE)
def test_references_become_values_and_the_rest_stays(value: Any, expected: Any) -> None:
    assert substitute(value, ENVS) == expected


def test_the_value_that_is_given_is_left_alone() -> None:
    value = {"/m/$SIZE": ["$SIZE"]}
    substitute(value, ENVS)
    assert value == {"/m/$SIZE": ["$SIZE"]}


def test_two_keys_that_become_one_are_said() -> None:
    with pytest.raises(SameKey, match="two keys come to '/m/7'"):
        substitute({"/m/$SIZE": "a", "/m/7": "b"}, ENVS)
