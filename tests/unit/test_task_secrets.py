"""Secrets in YAML and in what a Temporal client sends: what is taken, what is refused, and no value ever told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from towline.contract import SealedSecret
from towline.errors import InvalidJob
from towline.laying_over import SecretSource
from towline.loading import load_job
from towline.spec import JobSpec

CANARY = "s3cr3t-canary"
KEY = "0123456789abcdef"
SEALED = {"sealed": "QUJD", "key": KEY}


def seal(name: str, value: str) -> SealedSecret:
    """Says in readable form what would be sealed."""
    return SealedSecret(value.encode().hex(), KEY)


def load(
    text: str, given: dict[str, str] | None = None, environment: dict[str, str] | None = None, **more: Any
) -> JobSpec:
    return load_job(text.encode(), "job.yaml", secrets=SecretSource(given or {}, environment or {}, seal), **more)


def values(job: JobSpec) -> list[dict[str, str]]:
    return [{name: bytes.fromhex(each.sealed).decode() for name, each in task.secrets.items()} for task in job.tasks]


def refused(text: str, given: dict[str, str] | None = None, **more: Any) -> str:
    with pytest.raises(InvalidJob) as error:
        load(text, given, **more)
    assert CANARY not in str(error.value)
    return str(error.value)


def test_a_value_comes_from_the_file_then_from_what_is_given_then_from_the_callers_environment() -> None:
    text = "secrets: {A: file, B: file, C: , D: }\nrun: x"
    job = load(text, {"B": "given", "C": "given"}, {"A": "caller", "C": "caller", "D": "caller"})
    assert values(job) == [{"A": "file", "B": "given", "C": "given", "D": "caller"}]


def test_what_is_given_is_every_tasks() -> None:
    assert values(load("run: x\n---\nrun: y\nsecrets: {B: b}", {"A": "a"})) == [{"A": "a"}, {"B": "b", "A": "a"}]


def test_values_are_kept_as_they_are_written() -> None:
    assert values(load("secrets: {A: 007, B: on, C: 1.0}\nrun: x")) == [{"A": "007", "B": "on", "C": "1.0"}]


def test_one_without_a_value_must_be_given() -> None:
    said = refused("secrets:\n  TOKEN:\nrun: x")
    assert said.startswith("job.yaml:2: tasks[0].secrets.TOKEN: has no value; give it with --secret TOKEN")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"secrets: [{CANARY}]\nrun: x", "must be a mapping of names to strings, not a list"),
        (f"secrets: {CANARY}\nrun: x", "must be a mapping of names to strings, not a string"),
        (f"secrets: {{A: [{CANARY}]}}\nrun: x", "tasks[0].secrets.A: must be a string, not a list"),
        (f"secrets: {{A: {{b: {CANARY}}}}}\nrun: x", "tasks[0].secrets.A: must be a string, not a mapping"),
        (f"secrets: {{A: !{CANARY} x}}\nrun: x", "tasks[0].secrets.A: a tag is not allowed"),
        (f"secrets:\n  A: !{CANARY}\nrun: x", "tasks[0].secrets.A: a tag is not allowed"),
        (f"secrets: {{A: !{CANARY}}}\nrun: x", "YAML cannot be read"),
        (f"secrets:\n  A: *{CANARY}\nrun: x", "found an alias without an anchor"),
        (f"secrets:\n  A: &{CANARY} 1\n  B: &{CANARY} 2\n  C: *{CANARY}\n  run: [", "YAML cannot be read"),
        (f"secrets: {{A: {CANARY}}}\nenvs: {{A: b}}\nrun: x", "tasks[0].secrets.A: is in envs too"),
        (f"secrets: {{TOWLINE_A: {CANARY}}}\nrun: x", "begins with TOWLINE_"),
        (f"secrets: {{A: ''}}\nrun: {CANARY}x[", "tasks[0].secrets.A: is empty"),
        (f"secrets: {{A: {CANARY}}}\nrun: 5", "tasks[0].run: must be a string of commands"),
        (f"secrets: {{A: {CANARY}}}\nrun: x\nresources: {{cpus: many}}", "tasks[0].resources.cpus"),
        (f"resources: {{secrets: {{A: {CANARY}}}}}\nrun: x", "tasks[0].resources.secrets: unknown key here"),
        (f"secrets: {{A: {CANARY}, A: {CANARY}}}\nrun: x", "is given twice"),
        (f"secrets: {{A: '{CANARY}\n", "YAML cannot be read"),
        (f'secrets: {{A: "{CANARY}\\z"}}\nrun: x', "YAML cannot be read"),
        (f"secrets: {{A: {CANARY}\0}}\nrun: x", "control character"),
        (f"secrets: {{A: @{CANARY}}}\nrun: x", "YAML cannot be read"),
        (f"secrets:\n  A: %{CANARY}\nrun: x", "YAML cannot be read"),
        (f"secrets:\n\tA: {CANARY}\nrun: x", "a tab cannot indent"),
        (f"secrets:\n  A: {CANARY}: {CANARY}\nrun: x", "YAML cannot be read"),
        (f"secrets:\n  A: |{CANARY}\nrun: x", "YAML cannot be read"),
    ],
)
def test_what_is_wrong_is_told_without_the_value(text: str, words: str) -> None:
    assert words in refused(text)


def test_what_is_wrong_with_what_is_given_is_told_by_its_option() -> None:
    assert "--secret 1A: is no name" in refused("run: x", {"1A": CANARY})
    assert "--secret A: is in envs too" in refused("run: x", {"A": CANARY}, envs={"A": CANARY})


def test_the_job_that_is_sent_has_only_sealed_values() -> None:
    job = load("secrets: {A: plain}\nrun: x")
    assert job.to_input()["tasks"][0]["secrets"] == {"A": {"sealed": b"plain".hex(), "key": KEY}}
    assert JobSpec.parse(json.loads(json.dumps(job.to_input()))) == job
    assert CANARY not in repr(SecretSource({"A": CANARY}, {"B": CANARY}, seal))


def parse(secrets: Any) -> str:
    with pytest.raises(InvalidJob) as error:
        JobSpec.parse({"tasks": [{"run": "x", "secrets": secrets}]})
    assert CANARY not in str(error.value)
    return str(error.value)


def test_a_plain_value_that_a_temporal_client_sends_is_refused_since_the_history_has_it_now() -> None:
    said = parse({"A": CANARY})
    assert "tasks[0].secrets.A: must be sealed" in said
    assert "the history of this job holds it now, so replace it" in said


@pytest.mark.parametrize(
    "value",
    [
        None, 5, [CANARY], {}, {"sealed": CANARY}, {**SEALED, "more": CANARY}, {**SEALED, "sealed": 5},
        {**SEALED, "sealed": f"!{CANARY}"}, {**SEALED, "key": CANARY}, {"sealed": "***", "key": "***"}, "***",
    ],
)  # fmt: skip
def test_what_is_not_sealed_is_refused(value: Any) -> None:
    assert "tasks[0].secrets.A: " in parse({"A": value})


@pytest.mark.parametrize("secrets", [CANARY, [CANARY], 5])
def test_what_is_no_mapping_is_refused(secrets: Any) -> None:
    assert "tasks[0].secrets: must be a mapping" in parse(secrets)
