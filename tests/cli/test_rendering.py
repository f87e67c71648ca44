"""What people see fits their terminal, and nothing in it reaches the terminal as a command."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from tests.support.told_jobs import ToldJobs
from towline.cli import render
from towline.cli.session import command_line, plain
from towline.providers.protocol import ProviderCheck
from towline.spec import JobSpec

NASTY = "a\x1b[31m\x07\r\nb[red]c[/red]\u202ed :smile: 漢字"
LONG = "exit code 1 after 3 restarts; " * 6


def row(**more: Any) -> dict[str, Any]:
    fixed = {"status": "FAILED", "submitted_at": "2026-01-01T00:00:00+00:00", "duration_s": 93784.0}
    counts = {"tasks": 12, "restarts": 3, "recoveries": 1}
    task = {"index": 1, "name": "train-the-large-model"}
    return {"job_id": "train-1a2b3c4d", "name": "train", "reason": LONG, "task": task, **fixed, **counts, **more}


def document() -> dict[str, Any]:
    jobs = ToldJobs(tasks=2, nodes=2)
    jobs.task(0, "FAILED", LONG)
    jobs.attempt(0, 1, 1, "user")
    jobs.attempt(0, 2, 137, "preempted")
    return {
        **jobs.document,
        "reason": LONG,
        "web_ui_url": "http://127.0.0.1:8233/namespaces/default/workflows/" + "x" * 60,
    }


def node(job: str = "train-1a2b3c4d") -> dict[str, Any]:
    place = {"task_index": 0, "rank": 0, "provider": "local", "host": "127.0.0.1", "port": 2222, "pid": 1}
    return {"node_id": "local-24a5906cc1af", "job_id": job, "state": "running", **place}


def plan() -> JobSpec:
    return JobSpec.parse({"name": "j", "tasks": [{"name": "t" * 60, "run": "true", "resources": {"cpus": "2+"}}]})


VIEWS = {
    "queue": lambda: render.queue_table([row(), row(job_id="x" * 60, status="FAILED_NO_RESOURCE"), row(name=NASTY)]),
    "empty queue": lambda: render.queue_table([]),
    "status": lambda: render.status_view(document()),
    "nodes": lambda: render.node_table([node(), node("x" * 200)]),
    "no nodes": lambda: render.node_table([]),
    "check": lambda: render.check_table([ProviderCheck("local", False, LONG, LONG), ProviderCheck("ssh", True, "ok")]),
    "plan": lambda: render.plan(plan()),
}


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("view", VIEWS)
def test_everything_fits_the_terminal(
    view: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    VIEWS[view]()
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert max(cell_len(line) for line in lines) <= columns


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_queue_always_shows_the_whole_id_and_the_status(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    render.queue_table([row()])
    words = capsys.readouterr().out.splitlines()[1].split()
    assert "train-1a2b3c4d" in words
    assert "FAILED" in words


def test_a_wide_queue_has_all_columns_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    render.queue_table([row()])
    head, line = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "ID NAME STATUS TASK RESTARTS RECOVERIES SUBMITTED DURATION REASON"
    assert "2/12 train-the-large-model" in line
    assert "1d 2h" in line
    assert LONG.strip() in line


def test_without_a_terminal_there_is_neither_colour_nor_a_space_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    render.queue_table([row(reason="short"), row(job_id="long" * 9, reason="")])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_control_characters_and_markup_are_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    render.queue_table([row(job_id=NASTY, name=NASTY, reason=NASTY)])
    out = capsys.readouterr().out
    assert out.count("\n") == 2
    assert "a\\x1b[31m\\x07\\r\\nb[red]c[/red]\\u202ed :smile: 漢字" in out
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(out)


def test_a_status_names_the_attempts_their_causes_and_what_to_do_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    jobs = ToldJobs(tasks=2)
    jobs.task(0, "RUNNING", "restart 1/1 after exit code 1")
    jobs.attempt(0, 1, 1, "user")
    jobs.attempt(0, 2)
    render.status_view(jobs.document)
    out = capsys.readouterr().out
    assert "task 1/2 t0  RUNNING  restarts 0/1, recoveries 0\n  restart 1/1 after exit code 1\n" in out
    assert "1        FAILED   1          user   " in out
    assert "`towline logs job` follows it, `towline cancel job` ends it" in out


def test_a_refused_job_is_shown_a_line_per_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    render.status_view({**ToldJobs().document, "tasks": [], "reason": "run: missing\nfoo: unknown key"})
    assert "\nrun: missing\nfoo: unknown key\n" in capsys.readouterr().out


def test_a_command_to_copy_is_safe_in_a_shell() -> None:
    assert command_line("logs", "job-1") == "towline logs job-1"
    assert command_line("logs", "a; rm -rf /") == "towline logs 'a; rm -rf /'"
    assert command_line("cancel", "-x") == "towline cancel -- -x"


@pytest.mark.parametrize(("text", "shown"), [("ä漢🙂 ok", "ä漢🙂 ok"), ("\0\x9b\ud800", "\\x00\\x9b\\ud800")])
def test_plain_text_stays_and_the_rest_is_spelt_out(text: str, shown: str) -> None:
    assert plain(text) == shown
