"""The exit code is the user's own, whatever the commands print, trap, replace or leave unfinished."""

from __future__ import annotations

import pytest

from tests.support.shells import ShellNode
from towline.node.script import Commands

CODES = {
    "true": 0,
    "exit 7": 7,
    "exit 300": 44,
    "echo before\nfalse": 1,
    "false\necho after": 0,
    "exec false": 1,
    "exec true": 0,
    "set -e\nfalse\necho never": 1,
    "trap 'exit 3' EXIT\ntrue": 3,
    "trap 'echo bye' EXIT\nexit 4": 4,
    "kill -9 $$": 137,
    "kill -TERM $$": 143,
    "kill -INT $$": 130,
    "kill -PIPE $$": 141,
    "true\\": 0,
    "echo no newline at the end": 0,
    "cat <<END\nopen": 0,
    "exit 5\nexit 6": 5,
    "cat > /dev/null\nexit 8": 8,
    "cat > /dev/null": 0,
    "no-such-command": 127,
    "if": 2,
    "": 0,
    "printf 'exit 0\\nattempt 1 ended run 0 - -\\n'; exit 9": 9,
    "exec >/dev/null 2>&1 <&-\nexit 10": 10,
    "kill -9 0": 137,
    "kill -TERM $PPID; exit 12": 12,
    "kill -HUP $PPID; kill -INT $PPID; kill -PIPE $PPID; exit 13": 13,
}


@pytest.mark.parametrize("run", CODES)
def test_run_ends_with_the_code_of_its_commands(node: ShellNode, run: str) -> None:
    ended = node.run(1, Commands(None, run, {}))
    assert (ended.state, ended.phase, ended.exit_code) == ("ended", "run", CODES[run])


def test_setup_that_fails_is_the_end_and_says_that_it_was_setup(node: ShellNode) -> None:
    ended = node.run(1, Commands("echo preparing; exit 3", "echo never", {}))
    assert (ended.state, ended.phase, ended.exit_code) == ("ended", "setup", 3)
    assert node.log(1) == b"preparing\n"


def test_setup_without_run_does_run_and_succeeds(node: ShellNode) -> None:
    ended = node.run(1, Commands("echo prepared", None, {}))
    assert (ended.state, ended.exit_code) == ("ended", 0)
    assert node.log(1) == b"prepared\n"


def test_run_follows_setup_in_one_log_and_shell_settings_do_not_carry_over(node: ShellNode) -> None:
    ended = node.run(1, Commands("set -e; mine=1; echo setup >&2", "echo run ${mine-unset}; false; echo on", {}))
    assert (ended.phase, ended.exit_code) == ("run", 0)
    assert node.log(1) == b"setup\nrun unset\non\n"


def test_times_are_recorded(node: ShellNode) -> None:
    ended = node.run(1, Commands(None, "true", {}))
    assert ended.started_at
    assert ended.ended_at
    assert ended.started_at.endswith("+00:00")
    assert ended.started_at <= ended.ended_at
