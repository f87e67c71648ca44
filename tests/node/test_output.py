"""The file in which a task hands on values."""

from __future__ import annotations

from tests.support.shells import ShellNode, finish
from towline.node.script import Commands


def output(node: ShellNode, attempt: int, most: int = 100) -> bytes:
    process, nonce = node.start("output", attempt, most)
    status, answer = finish(process, nonce)
    assert status == 0
    return answer


def test_setup_and_run_write_into_one_file_and_each_attempt_has_its_own(node: ShellNode) -> None:
    assert node.run(1, Commands("echo a=1 >>$TOWLINE_OUTPUT", "echo b=2 >>$TOWLINE_OUTPUT; exit 3", {})).exit_code == 3
    assert node.run(2, Commands(None, 'printf "c=\\377" >>"$TOWLINE_OUTPUT"', {})).exit_code == 0
    assert output(node, 1) == b"a=1\nb=2\n"
    assert output(node, 2) == b"c=\xff"


def test_no_more_is_read_than_is_asked_for(node: ShellNode) -> None:
    assert node.run(1, Commands(None, "head -c 5000 /dev/zero >$TOWLINE_OUTPUT", {})).exit_code == 0
    assert len(output(node, 1, most=101)) == 101


def test_a_file_that_the_task_took_away_is_empty(node: ShellNode) -> None:
    assert node.run(1, Commands(None, "rm $TOWLINE_OUTPUT", {})).exit_code == 0
    assert node.run(2, Commands(None, "rm $TOWLINE_OUTPUT; mkfifo $TOWLINE_OUTPUT", {})).exit_code == 0
    assert output(node, 1) == output(node, 2) == b""
