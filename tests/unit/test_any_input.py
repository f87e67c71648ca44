"""Whatever a Temporal client sends is either a job or refused in bounded words, and soon."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import InvalidJob
from towline.problems import LONGEST_PROBLEM, MOST_PROBLEMS
from towline.resources import Resources
from towline.spec import JobSpec, TaskSpec


def told(raw: object) -> list[str]:
    with pytest.raises(InvalidJob) as refused:
        JobSpec.parse(raw)
    problems = refused.value.problems
    assert problems
    assert len(problems) <= MOST_PROBLEMS
    assert all(len(each) <= LONGEST_PROBLEM and each.isprintable() for each in problems)
    return problems


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def within_itself() -> dict[str, Any]:
    value: dict[str, Any] = {"tasks": []}
    value["tasks"].append(value)
    return value


@pytest.mark.parametrize(
    "raw",
    [
        None, 0, True, "text", b"bytes", [], {}, object(), {"tasks": None}, {"tasks": []}, {"tasks": "x"},
        {"tasks": {}}, {"tasks": [None, 1, "x", []]}, {1: 2}, {"\ud800": 1}, {"tasks": [{1: 2, None: 3}]},
        {"tasks": [{"run": b"x"}]}, {"tasks": [{"run": "\ud800"}]}, {"tasks": ({"run": "x"},)}, within_itself(),
        {"tasks": [{"run": "x", "resources": nested(5000)}]},
        {"tasks": [{"run": "x", "resources": {"autostop": {"a": nested(90)}}}]},
        {"tasks": [{"run": "x", "resources": {"ports": 10**5000, "labels": {"a": 10**5000}}}]},
        {"tasks": [{"run": "x", "int": 1, "str": 2, "[key]": 3, "dict[x": 4}]},
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused_in_words(raw: object) -> None:
    told(raw)


@pytest.mark.parametrize(
    "raw",
    [
        {"tasks": [{} for _ in range(700_000)]},
        {"tasks": [{} for _ in range(5000)]},
        {"tasks": [{"run": "x", **{f"cpu{number}": 1 for number in range(90_000)}}]},
        {"tasks": [{"run": "x", "envs": {f"{number}": 1 for number in range(90_000)}}]},
        {"tasks": [{"run": "x", "resources": {"any_of": [{"cpu": 1}] * 30_000}}]},
    ],
    ids=["tasks", "empty tasks", "unknown keys", "envs", "alternatives"],
)
def test_very_much_that_is_wrong_is_refused_before_a_workflow_task_would_be_given_up(raw: object) -> None:
    begun = time.process_time()
    told(raw)
    assert time.process_time() - begun < 2  # the time after which the Temporal SDK calls a workflow deadlocked


def test_a_long_wrong_value_is_shown_short() -> None:
    (only,) = told({"tasks": [{"run": "x", "resources": {"infra": "q" * 200, "cpus": 1}}]})
    assert "q" * 39 + "…" in only
    assert "q" * 41 not in only


_KEYS = st.sampled_from([*TaskSpec.model_fields, *Resources.model_fields, "tasks", "strategy", "restart_nodes"])
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=[]), max_size=8)
    | st.sampled_from(["2+", "16GB", "A100:8", "local", "ssh/lab", "none", "8080-8090", "FAILOVER"])
)
_ANYTHING = st.recursive(
    _LEAVES | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_KEYS | st.text(max_size=5) | st.integers(), inner, max_size=6)
        | st.tuples(inner)
    ),
    max_leaves=25,
)
_TASK = st.fixed_dictionaries(
    {"run": st.just("true") | _LEAVES},
    optional={
        "envs": st.dictionaries(st.text(max_size=5), _LEAVES, max_size=3) | _ANYTHING,
        "resources": st.dictionaries(_KEYS, _ANYTHING, max_size=4) | _ANYTHING,
        "name": _LEAVES,
        "num_nodes": _LEAVES,
    },
)


@settings(max_examples=400, deadline=None)
@given(
    _ANYTHING | st.fixed_dictionaries({"tasks": st.lists(_TASK | _ANYTHING, max_size=3)}, optional={"name": _LEAVES})
)
def test_any_input_is_a_job_or_refused(raw: object) -> None:
    try:
        spec = JobSpec.parse(raw)
    except InvalidJob:
        told(raw)
        return
    _survives_the_wire(spec)


_AMOUNTS = st.integers(1, 999_999) | st.floats(0.001, 999_999) | st.integers(1, 10**6).map(lambda number: f"{number}+")
_RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "cpus": _AMOUNTS,
        "memory": _AMOUNTS | st.floats(0.001, 900).map(lambda number: f"{number:.6f}TB+"),
        "disk_size": st.integers(1, 10**6),
        "accelerators": st.dictionaries(
            st.from_regex(r"[A-SU-Z][A-Za-z0-9.-]{0,9}", fullmatch=True), st.floats(0.01, 99), max_size=3
        ),
        "ports": st.lists(st.integers(1, 65535), max_size=3) | st.integers(1, 65535),
        "use_spot": st.booleans() | st.none(),
        "max_hourly_cost": st.floats(0.01, 1000),
        "autostop": st.booleans() | st.integers(-1, 100),
        "job_recovery": st.sampled_from(
            ["failover", "none", {"max_restarts_on_errors": 3}, {"recover_on_exit_codes": 7}]
        ),
    },
)


def _with_alternatives(base: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """Resources with `any_of`; what holds for the whole task stays in the base."""
    return {**base, "any_of": [{key: each[key] for key in each if key != "job_recovery"} for each in others]}


_VALID = st.fixed_dictionaries(
    {"run": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(lambda text: text + "x")},
    optional={
        "envs": st.dictionaries(
            st.from_regex(r"MY_[A-Z_]{1,5}", fullmatch=True),
            st.text(st.characters(codec="utf-8", exclude_characters="\0")),
        ),
        "resources": _RESOURCES
        | st.builds(_with_alternatives, _RESOURCES, st.lists(_RESOURCES, min_size=1, max_size=3)),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_VALID, min_size=1, max_size=3))
def test_a_job_is_the_same_on_the_other_side_of_temporal(tasks: list[dict[str, Any]]) -> None:
    spec = JobSpec.parse({"name": "j", "tasks": tasks})
    assert [each.run for each in spec.tasks] == [each["run"] for each in tasks]
    assert [each.envs for each in spec.tasks] == [each.get("envs", {}) for each in tasks]
    _survives_the_wire(spec)


def _survives_the_wire(spec: JobSpec) -> None:
    sent = json.loads(json.dumps(spec.to_input(), allow_nan=False))
    assert JobSpec.parse(sent) == spec
    for task in spec.tasks:
        assert Resources.model_validate(json.loads(json.dumps(task.resources.to_input()))) == task.resources
        task.resources.alternatives()
