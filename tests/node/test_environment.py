"""What the user's commands find around them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.shells import JOB, ShellNode
from towline.node.script import Commands

VALUES = {
    "QUOTES": 'it\'s "quoted" `id` $(id) $HOME \\ \\n',
    "NEWLINES": "a\nb\n\n",
    "EMOJI": "🚢 naïve",
    "NOT_UTF8": b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "EMPTY": "",
    "BLANKS": "  \t ",
    "LARGE": "x'y\n" * 25_000,
    "PYTHONUNBUFFERED": "",
    "OPTIND": "no number",
    "RANDOM": "a[$(id)]",
    "IFS": ":",
    "LANG": "C.UTF-8",
}


def test_values_arrive_byte_for_byte(node: ShellNode) -> None:
    ended = node.run(1, Commands(None, 'cat "/proc/$$/environ"', {**VALUES, "UID": "kept by bash"}))
    assert ended.exit_code == 0
    found = dict(entry.partition(b"=")[::2] for entry in node.log(1).split(b"\0"))
    for name, value in VALUES.items():
        assert found[name.encode()] == os.fsencode(value), name


def test_values_are_on_no_command_line_and_in_no_readable_file(node: ShellNode) -> None:
    run = 'cat /proc/[0-9]*/cmdline | tr "\\0" " "'
    ended = node.run(1, Commands(None, run, {"TOKEN": "very" + "-secret"}))
    assert ended.exit_code == 0
    assert b"very-secret" not in node.log(1)
    for path in [node.home / ".towline", *(node.home / ".towline").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_output_of_python_is_not_held_back_unless_the_user_says_so(node: ShellNode) -> None:
    node.run(1, Commands(None, 'echo "$PYTHONUNBUFFERED"', {}))
    assert node.log(1) == b"1\n"


def test_the_working_directory_is_one_place_with_two_names(node: ShellNode) -> None:
    node.run(1, Commands("echo kept > file", "pwd; cat ~/towline_workdir/file; ls -i -d ~/sky_workdir/.", {}))
    lines = node.log(1).decode().splitlines()
    assert lines[:2] == [str(node.home / "sky_workdir"), "kept"]
    node.run(2, Commands(None, "cat file", {}))
    assert node.log(2) == b"kept\n"


def test_files_that_the_user_makes_have_the_rights_of_a_login(node: ShellNode) -> None:
    node.run(1, Commands(None, "umask; touch file", {}))
    mask = os.umask(0)
    os.umask(mask)
    assert int(node.log(1), 8) == mask
    assert stat.S_IMODE((node.home / "sky_workdir" / "file").stat().st_mode) == 0o666 & ~mask


def test_stdin_is_empty_and_signals_are_as_in_a_login(node: ShellNode) -> None:
    run = "cat; readlink /proc/$$/fd/0; grep -E 'Sig(Ign|Blk)' /proc/self/status; ls /proc/$$/fd"
    node.run(1, Commands("true", run, {}))
    lines = node.log(1).decode().split()
    assert lines[0] == "/dev/null"
    assert {lines[2], lines[4]} == {"0" * 16}
    # 255 is bash's own, for the script.
    assert lines[5:] == ["0", "1", "2", "255"]


def test_the_marker_cannot_be_taken_away_by_a_variable_of_the_user(node: ShellNode) -> None:
    node.run(1, Commands(None, 'echo "$TOWLINE_MARK"', {"TOWLINE_MARK": "mine"}), index=3)
    assert node.log(1, index=3).decode() == f"{JOB}/3;{node.home};\n"


def test_scripts_of_400_kilobytes_run(node: ShellNode) -> None:
    long = "# " + "x" * 998 + "\n"
    ended = node.run(1, Commands(long * 400 + "echo setup", long * 400 + "echo run; exit 3", {}))
    assert ended.exit_code == 3
    assert node.log(1) == b"setup\nrun\n"


def test_a_full_disk_does_not_change_the_exit_code(node: ShellNode, tmp_path: Path) -> None:
    task = node.task()
    task.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", task]).returncode != 0:
        pytest.skip("needs a file system of its own to fill")
    try:
        ended = node.run(1, Commands(None, "while printf %4096s; do :; done; exit 6", {}))
        assert (task / "attempt-1" / "log").stat().st_size < 128 << 10
    finally:
        node.call("stop", 0)
        subprocess.run(["umount", "--lazy", task], check=True)
    assert (ended.state, ended.phase, ended.exit_code) == ("ended", "run", 6)
