"""`validate`, `schema`, and how `launch` reads its input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.command import environment, run
from towline.cli import towline
from towline.errors import InvalidJob, UsageError


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOWLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    path = tmp_path / "train.yaml"
    path.write_text("name: one\nenvs: {A: from-file}\nrun: echo $A\n---\nname: two\nrun: 'true'\n")
    return path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(towline, arguments, catch_exceptions=False, standalone_mode=False)


def envs(*arguments: str) -> list[dict[str, str]]:
    tasks = json.loads(invoke("validate", "--json", *arguments).stdout)["tasks"]
    return [task.get("envs", {}) for task in tasks]


def test_the_plan_is_shown(job: Path) -> None:
    out = invoke("validate", str(job)).stdout
    assert "2 tasks" in out
    assert "1/2 one" in out
    assert "2/2 two" in out


def test_json_is_the_input_of_the_workflow_and_nothing_else(job: Path) -> None:
    document = json.loads(invoke("validate", "--json", "-n", "named", str(job)).stdout)
    assert document["name"] == "named"
    assert [task["run"] for task in document["tasks"]] == ["echo $A", "true"]


def test_a_variable_given_on_the_command_line_is_every_tasks(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B", "the caller's")
    given = {"A": "x=y", "B": "the caller's", "C": ""}
    assert envs(str(job), "--env", "A=x=y", "--env", "B", "--env", "C=") == [given, given]


def test_a_file_of_variables_is_read_as_others_read_it_and_the_command_line_wins(job: Path, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# comment\nexport A=1\nB='two words'\nC=\"a\\nb\"  # note\nD=$A\n\nE=\n")
    expected = {"A": "9", "B": "two words", "C": "a\nb", "D": "$A", "E": ""}
    assert envs(str(job), "--env-file", str(file), "--env", "A=9")[1] == expected


@pytest.mark.parametrize(("content", "line"), [("A=1\nB\n", 2), ("A=1\n= x\n", 2), ("A='open\nB=2\n", 1)])
def test_a_line_that_is_no_variable_is_refused_by_number(job: Path, tmp_path: Path, content: str, line: int) -> None:
    file = tmp_path / ".env"
    file.write_text(content)
    with pytest.raises(UsageError, match=rf"\.env:{line}: write NAME=VALUE"):
        invoke("validate", str(job), "--env-file", str(file))


def test_a_file_of_variables_that_is_not_there_is_said(job: Path) -> None:
    with pytest.raises(UsageError, match="--env-file nowhere: No such file"):
        invoke("validate", str(job), "--env-file", "nowhere")


def test_a_variable_that_the_caller_does_not_have_is_said(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(UsageError, match="--env NOT_THERE: has no value here"):
        invoke("validate", str(job), "--env", "NOT_THERE")


@pytest.mark.parametrize("command", ["validate", "launch"])
@pytest.mark.parametrize("given", [["--env", "=x"], ["--env", "1A=x"], ["--env", "TOWLINE_X=1"]], ids=" ".join)
def test_a_name_that_no_variable_can_have_is_refused_before_anything_starts(
    job: Path, command: str, given: list[str]
) -> None:
    with pytest.raises((UsageError, InvalidJob)):
        invoke(command, str(job), *given)
    assert not (job.parent / "home").exists()


def test_what_is_wrong_with_a_variable_is_told_by_where_it_was_given(job: Path, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1\nTOWLINE_X=2\n")
    given = {
        ("--env", "1A=secret"): "--env 1A: is no name of an environment variable",
        ("--env", "=secret"): "--env: write K=VALUE; the name is missing",
        ("--env-file", str(file)): f"--env-file {file}:2: TOWLINE_X: begins with TOWLINE_",
    }
    for arguments, said in given.items():
        with pytest.raises(UsageError) as refused:
            invoke("validate", str(job), *arguments)
        assert str(refused.value).startswith(said)
        assert "\n" not in str(refused.value)
        assert "secret" not in str(refused.value)


def secrets(*arguments: str) -> list[dict[str, str]]:
    tasks = json.loads(invoke("validate", "--json", *arguments).stdout)["tasks"]
    return [task.get("secrets", {}) for task in tasks]


def test_secrets_are_every_tasks_and_shown_as_stars(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".secrets"
    file.write_text("B=canary-in-file\n")
    monkeypatch.setenv("C", "canary-of-the-caller")
    given = (str(job), "--secret", "A1=canary-given", "--secret-file", str(file), "--secret", "C")
    assert secrets(*given) == [{"A1": "***", "B": "***", "C": "***"}] * 2
    plan = invoke("validate", *given)
    assert "secrets of task 1/2 one: " in plan.stdout
    assert "A1=***" in plan.stdout
    for shown in (plan, invoke("validate", "--json", *given)):
        assert "canary" not in shown.output
    assert not list(tmp_path.rglob("secrets.keys*"))


def test_what_is_wrong_with_a_secret_is_told_without_its_value(job: Path, tmp_path: Path) -> None:
    file = tmp_path / ".secrets"
    file.write_text("A1=canary\nTOWLINE_X=canary\n")
    given = {
        ("--secret", "1A=canary"): "--secret 1A: is no name of an environment variable",
        ("--secret", "=canary"): "--secret: write K=VALUE; the name is missing",
        ("--secret", "NOT_SET_HERE"): "--secret NOT_SET_HERE: has no value here",
        ("--secret", "X=canary", "--env", "X=canary"): "--secret X: is in envs too",
        ("--secret-file", str(file)): f"--secret-file {file}:2: TOWLINE_X: begins with TOWLINE_",
        ("--secret-file", str(tmp_path / "none")): f"--secret-file {tmp_path}/none: No such file",
    }
    for arguments, said in given.items():
        with pytest.raises(UsageError) as refused:
            invoke("validate", str(job), *arguments)
        assert str(refused.value).startswith(said)
        assert "canary" not in str(refused.value)


def test_a_secret_that_is_too_short_to_be_masked_is_said(job: Path) -> None:
    assert "secret A1 is too short to be masked in logs" in invoke("validate", str(job), "--secret", "A1=abc").stderr
    assert "too short" not in invoke("validate", str(job), "--secret", "A1=abcd").stderr


def test_where_the_workers_are_elsewhere_their_public_key_is_needed(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    with pytest.raises(UsageError, match="set TOWLINE_SECRETS_PUBLIC_KEY to the public key of the workers"):
        invoke("validate", str(job), "--secret", "A1=abcd")
    monkeypatch.setenv("TOWLINE_SECRETS_PUBLIC_KEY", "towline-private-" + "A" * 43 + "=")
    with pytest.raises(UsageError, match="TOWLINE_SECRETS_PUBLIC_KEY: must be a public key, .* not a private key"):
        invoke("validate", str(job), "--secret", "A1=abcd")
    assert invoke("validate", str(job)).exit_code == 0


def test_all_problems_are_said_at_once_with_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("run: true\nresources:\n  cpu: 2\nnum_node: 1\n")
    done = run("launch", str(path), "--json", env=environment(tmp_path / "home"))
    assert (done.returncode, done.stdout) == (2, b"")
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"error: {path}:") for line in lines)
    assert not (tmp_path / "home").exists()


def test_what_no_provider_has_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text("run: 'true'\nresources: {cpus: 100000}\n")
    done = run("launch", str(path), env=environment(tmp_path / "home"))
    assert done.returncode == 2
    assert b"task 1/1 huge" in done.stderr
    assert not (tmp_path / "home" / "stack.json").exists()


def test_the_schema_is_one_json_document() -> None:
    assert json.loads(invoke("schema").stdout)["$schema"]
