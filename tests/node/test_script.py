"""The node script as text: it parses under every shell, and what is quoted stays one word."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.shells import found
from towline.node import script
from towline.node.script import NodeAttempt


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"], ["busybox", "sh"]], ids=lambda each: each[0])
def test_every_shell_can_read_it(shell: list[str], tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_bytes(script.source())
    assert subprocess.run([found(shell[0]), *shell[1:], "-n", path], capture_output=True).returncode == 0


def test_every_word_of_a_command_line_is_quoted() -> None:
    line = script.command("towline-n", "watch", "key; rm -rf /", 0, 7)
    assert shlex.split(line)[-5:] == ["towline-n", "watch", "key; rm -rf /", "0", "7"]


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "A-B", "ÄA", "A\n"])
def test_what_cannot_be_a_variable_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an environment variable"):
        script.environment_file({name: "value"})
    with pytest.raises(ValueError, match="cannot be an environment variable"):
        script.environment_file({"NAME": "nul \0 in it"})


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_found_in_pieces_of_any_size(size: int) -> None:
    said = b"banner\ntowline-x in the text\nno newline\ntowline-x\nthe answer\ntowline-x\n\xff"
    answer = script.Answer("towline-x")
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    assert b"".join(answer.feed(piece) for piece in pieces) == b"the answer\ntowline-x\n\xff"
    assert answer.begun


def test_no_nonce_is_no_answer() -> None:
    answer = script.Answer("towline-x")
    assert answer.feed(b"x" * 10_000_000) == b""
    assert not answer.begun


def test_attempts_are_read_and_anything_else_is_refused() -> None:
    assert script.parse_attempt("attempt 3 running setup - - -") == NodeAttempt(3, "running", "setup", None, None, None)
    assert script.parse_attempt("attempt 3 ended run 7 a b") == NodeAttempt(3, "ended", "run", 7, "a", "b")
    for line in ("", "attempt", "attempt x running setup - - -", "attempt 1 ended run 0 a b c", "closed"):
        with pytest.raises(ValueError):  # noqa: PT011 - any reading error is one
            script.parse_attempt(line)
