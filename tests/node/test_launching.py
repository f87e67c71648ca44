"""One attempt at a time, each started exactly once, none once the task is closed; whatever dies in
between."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import psutil
import pytest

from tests.support.shells import ShellNode, finish, shell_node
from towline.node import script
from towline.node.script import Commands

ONCE = Commands(None, "echo ran >> ~/ran; until [ -e ~/go ]; do sleep 0.05; done", {})


def runs(node: ShellNode) -> int:
    path = node.home / "ran"
    return len(path.read_text().splitlines()) if path.exists() else 0


def raw_ensure(node: ShellNode, attempt: int, commands: Commands) -> list[str]:
    return node.call("ensure", attempt, stdin=script.payload(commands))


def test_ensuring_again_attaches_to_what_runs_and_to_what_has_ended(node: ShellNode) -> None:
    first = node.ensure(1, ONCE)
    assert (first.state, first.phase, first.exit_code) == ("running", "run", None)
    assert node.ensure(1, Commands(None, "echo other", {})) == first
    (node.home / "go").touch()
    ended = node.watch(1)
    assert node.ensure(1, ONCE) == ended
    assert (ended.state, ended.exit_code, runs(node)) == ("ended", 0, 1)


def test_thirty_at_once_run_it_once(node: ShellNode) -> None:
    answers: list[str] = []

    def ensure() -> None:
        answers.extend(raw_ensure(node, 1, ONCE))

    threads = [threading.Thread(target=ensure) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 30
    assert len(set(answers)) == 1
    (node.home / "go").touch()
    assert node.watch(1).exit_code == 0
    assert runs(node) == 1


def test_an_older_attempt_is_refused(node: ShellNode) -> None:
    node.run(1, Commands(None, "exit 1", {}))
    node.run(10, Commands(None, "exit 2", {}))
    assert raw_ensure(node, 9, ONCE) == ["superseded"]
    assert raw_ensure(node, 1, ONCE) == ["superseded"]
    assert runs(node) == 0
    assert [line.split()[1] for line in node.call("ledger")] == ["1", "10"]


def test_a_closed_task_starts_nothing(node: ShellNode) -> None:
    assert node.call("closed") == ["no"]
    node.call("close")
    node.call("close")
    assert node.call("closed") == ["yes"]
    assert raw_ensure(node, 1, ONCE) == ["closed"]
    assert node.call("ledger") == []
    assert runs(node) == 0


def test_a_removed_task_leaves_nothing_but_the_mark_that_it_is_closed(node: ShellNode) -> None:
    node.run(1, Commands(None, "echo text", {}))
    node.call("remove")
    assert sorted(path.name for path in node.task().iterdir()) == ["closed", "launch.lock"]
    assert raw_ensure(node, 1, ONCE) == ["closed"]


def test_an_attempt_cut_short_on_its_way_is_not_started(node: ShellNode) -> None:
    payload = script.payload(ONCE)
    for size in (0, 511, 512, 1024, 1536):
        process, _ = node.start("ensure", 1)
        process.communicate(payload[:size], timeout=60)
        assert process.returncode == 1
    assert node.call("ledger") == []
    assert node.ensure(1, ONCE).state == "running"


def test_a_supervisor_that_was_killed_is_told_from_a_reboot(node: ShellNode) -> None:
    node.ensure(1, ONCE)
    watching, nonce = node.start("watch", 1)
    os.kill(node.supervisor(1), signal.SIGKILL)
    assert finish(watching, nonce)[1].decode().splitlines()[-1].startswith("attempt 1 supervisor_killed")
    assert node.ensure(1, ONCE).state == "supervisor_killed"
    (node.task() / "attempt-1" / "boot").write_text("another boot\n")
    assert node.ensure(1, ONCE).state == "rebooted"
    assert node.call("ledger")[0].startswith("attempt 1 rebooted")
    assert runs(node) <= 1


def test_locks_are_held_by_the_supervisor_alone(node: ShellNode) -> None:
    node.run(1, Commands("nohup sleep 1000 &", "nohup sleep 1001 & echo ended", {}))
    assert (node.task() / "attempt-1" / "exit").exists()
    sleeping = [each for each in node.processes() if "sleep" in each.words]
    assert sleeping
    for process in sleeping:
        assert {Path(file.path).name for file in psutil.Process(process.pid).open_files()} <= {"log", "nohup.out"}
    node.call("close")


SHIM = """#!/bin/dash
printf . >>{count}
read -r _ _ _ _ _ victim _ </proc/self/stat
[ "$(/usr/bin/wc -c <{count})" -eq "$(/bin/cat {deadly})" ] && kill -s KILL "$victim"
exec {tool} "$@"
"""
TOOLS = [
    "bash",
    "cat",
    "date",
    "flock",
    "grep",
    "head",
    "mkdir",
    "mv",
    "rm",
    "setsid",
    "sh",
    "sleep",
    "sort",
    "tail",
    "tar",
    "touch",
    "wc",
]


def shimmed(node: ShellNode, directory: Path) -> Path:
    """Put before every tool one that kills the script calling it, when its turn in the file `deadly` has
    come."""
    directory.mkdir()
    for tool in TOOLS:
        real = shutil.which(tool, path=node.path)
        shim = directory / tool
        shim.write_text(SHIM.format(count=directory / "count", deadly=directory / "deadly", tool=real))
        shim.chmod(0o755)
    return directory


@pytest.mark.timeout(300)
def test_killed_between_any_two_steps_it_is_started_once_by_the_next(tmp_path: Path) -> None:
    with shell_node("dash", tmp_path) as node:
        shims = shimmed(node, tmp_path / "shims")
        point = 1
        while ensure_killed_at(node, shims, point):
            ended = node.run(1, MARKED, index=point)
            survived = ended.state == "ended" and ended.exit_code == 0
            assert marked_runs(node, point) == 1 if survived else ended.state == "supervisor_killed"
            assert marked_runs(node, point) <= 1, f"killed at step {point}"
            point += 1
        assert point > 15


MARKED = Commands(None, "echo $TOWLINE_MARK >> ~/ran", {})


def marked_runs(node: ShellNode, index: int) -> int:
    path = node.home / "ran"
    return path.read_text().count(f"/{index};") if path.exists() else 0


def ensure_killed_at(node: ShellNode, shims: Path, point: int) -> bool:
    """Whether there was a step of that number to be killed at."""
    (shims / "deadly").write_text(f"{point}\n")
    (shims / "count").write_text("")
    plain, node.path = node.path, f"{shims}:{node.path}"
    process, _ = node.start("ensure", 1, index=point)
    process.communicate(script.payload(MARKED), timeout=60)
    node.path = plain
    return (shims / "count").stat().st_size >= point
