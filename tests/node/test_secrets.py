"""Secrets on a node: in the environment of `setup` and `run`, and nowhere else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.node.test_environment import VALUES
from tests.node.test_exit_codes import CODES
from tests.support.shells import ShellNode, finish
from towline.node import script
from towline.node.script import Commands

CANARY = "very" + "-secret"


def leaves(node: ShellNode) -> list[Path]:
    """Every file of Towline's on the node that holds the canary."""
    files = (each for each in (node.home / ".towline").rglob("*") if each.is_file())
    return [each for each in files if CANARY.encode() in each.read_bytes()]


def test_setup_and_run_find_them_in_their_environment_byte_for_byte(node: ShellNode) -> None:
    show = 'tr "\\0" "\\1" <"/proc/$$/environ" >~/'
    secrets = {f"S_{name}": value for name, value in VALUES.items() if value}
    assert node.run(1, Commands(show + "setup", show + "run", {"A": "b"}, secrets)).exit_code == 0
    for phase in ("setup", "run"):
        entries = (node.home / phase).read_bytes().split(b"\1")
        found = dict(entry.partition(b"=")[::2] for entry in entries)
        for name, value in secrets.items():
            assert found[name.encode()] == os.fsencode(value), (phase, name)


def test_no_file_holds_them_once_the_attempt_counts_as_started(node: ShellNode) -> None:
    wait = 'until [ -e ~/go ]; do sleep 0.02; done; printf %s "$TOKEN" >~/seen'
    node.ensure(1, Commands(wait, "true", {"A": "b"}, {"TOKEN": CANARY}))
    assert leaves(node) == []
    (node.home / "go").touch()
    assert node.watch(1).exit_code == 0
    assert (node.home / "seen").read_text() == CANARY
    assert leaves(node) == []


def test_they_are_on_no_command_line(node: ShellNode) -> None:
    run = 'for file in /proc/[0-9]*/cmdline; do tr "\\0" " " <$file 2>/dev/null; done; echo end'
    assert node.run(1, Commands(run, run, {}, {"TOKEN": CANARY})).exit_code == 0
    assert b"end" in node.log(1)
    assert CANARY.encode() not in node.log(1)


def test_only_processes_of_the_task_have_them_in_their_environment(node: ShellNode) -> None:
    node.ensure(1, Commands(None, "until [ -e ~/go ]; do sleep 0.02; done", {}, {"TOKEN": CANARY}))
    (supervisor, *_) = (node.task() / "attempt-1" / "pid").read_text().split()
    assert CANARY.encode() not in Path(f"/proc/{supervisor}/environ").read_bytes()
    (node.home / "go").touch()
    assert node.watch(1).exit_code == 0


def test_what_a_crash_in_the_middle_of_a_start_left_is_removed_by_the_next_start_and_by_a_close(
    node: ShellNode,
) -> None:
    for after in ("start", "close"):
        for left in ("attempt-1", "attempt-2.part"):
            (node.task() / left).mkdir(parents=True, exist_ok=True)
            (node.task() / left / "secrets").write_text(script.environment_file({"TOKEN": CANARY}))
        if after == "start":
            assert node.run(3, Commands(None, "true", {})).exit_code == 0
        else:
            node.call("close")
        assert leaves(node) == []


def test_each_attempt_has_those_it_was_given(node: ShellNode) -> None:
    assert node.run(1, Commands(None, "echo ${TOKEN:-none}", {}, {"TOKEN": "first"})).exit_code == 0
    assert node.run(2, Commands(None, "echo ${TOKEN:-none}", {}, {"TOKEN": "second"})).exit_code == 0
    assert node.run(3, Commands(None, "echo ${TOKEN:-none}", {})).exit_code == 0
    assert [node.log(attempt) for attempt in (1, 2, 3)] == [b"first\n", b"second\n", b"none\n"]


def test_values_that_look_like_shell_are_no_shell(node: ShellNode) -> None:
    value = "SECRETS\n'; touch ~/made; '\n$(touch ~/made)`touch ~/made`\\"
    assert node.run(1, Commands(None, 'printf %s "$TOKEN"', {}, {"TOKEN": value})).exit_code == 0
    assert node.log(1) == value.encode()
    assert not (node.home / "made").exists()


@pytest.mark.parametrize("run", CODES)
def test_the_exit_code_is_the_users_own_with_secrets_as_without(node: ShellNode, run: str) -> None:
    ended = node.run(1, Commands(None, run, {}, {"TOKEN": CANARY}))
    assert (ended.state, ended.phase, ended.exit_code) == ("ended", "run", CODES[run])


@pytest.mark.parametrize("phase", ["setup", "run"])
def test_a_supervisor_that_is_killed_is_seen_at_once_though_the_task_runs_on(node: ShellNode, phase: str) -> None:
    wait = "touch ~/here; until [ -e ~/go ]; do sleep 0.02; done"
    commands = (
        Commands(wait, None, {}, {"TOKEN": CANARY}) if phase == "setup" else Commands(None, wait, {}, {"T": CANARY})
    )
    node.ensure(1, commands)
    process, nonce = node.start("watch", 1)
    while not (node.home / "here").exists():
        pass
    os.kill(node.supervisor(1), signal.SIGKILL)
    status, answer = finish(process, nonce)
    assert status == 0
    assert answer.decode().splitlines()[-1].startswith(f"attempt 1 supervisor_killed {phase} - ")
    (node.home / "go").touch()


def test_commands_are_not_shown_with_their_secrets() -> None:
    assert CANARY not in repr(Commands(None, "true", {}, {"TOKEN": CANARY}))
