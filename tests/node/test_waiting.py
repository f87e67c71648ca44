"""Waiting for the end, for output and for the next attempt: at once, every byte, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time

import psutil

from tests.support.shells import Found, ShellNode, finish
from towline.node import script
from towline.node.script import Commands

GATE = "until [ -e ~/{} ]; do sleep 0.02; done"


def follow_all(node: ShellNode, attempt: int, offset: int = 0) -> bytes:
    """What a client does: call again from where it is until the node says that this is the end."""
    received = b""
    while True:
        status, data = finish(*node.start("follow", attempt, offset + len(received)))
        received += data
        if status == 0:
            return received
        assert status == script.AGAIN


def test_watch_tells_the_phases_as_they_begin(node: ShellNode) -> None:
    node.ensure(1, Commands(GATE.format("a"), GATE.format("b") + "; exit 2", {}))
    process, nonce = node.start("watch", 1)
    assert process.stdout
    lines = iter(process.stdout.readline, b"")
    assert [next(lines) for _ in range(3)] == [b"\n", f"{nonce}\n".encode(), b"phase setup\n"]
    (node.home / "a").touch()
    assert next(lines) == b"phase run\n"
    (node.home / "b").touch()
    assert next(lines).startswith(b"attempt 1 ended run 2 ")
    finish(process, nonce)


def test_watching_what_has_ended_answers_at_once(node: ShellNode) -> None:
    ended = node.run(1, Commands("true", "exit 5", {}))
    assert node.watch(1) == ended


def test_following_gives_every_byte_whatever_it_is(node: ShellNode) -> None:
    run = f"""{GATE.format("go")}
printf 'invalid \\377\\376, nul \\000, carriage\\r return\\n'
head -c 5000000 /dev/zero | tr '\\0' x
sleep 0.3
printf 'no newline at the end'"""
    node.ensure(1, Commands(None, run, {}))
    process, nonce = node.start("follow", 1, 0)
    (node.home / "go").touch()
    status, live = finish(process, nonce)
    whole = node.log(1)
    assert status == script.AGAIN
    assert whole.startswith(live)
    assert len(whole) > 5_000_000
    assert live + follow_all(node, 1, len(live)) == whole
    assert follow_all(node, 1, 7) == whole[7:]
    assert follow_all(node, 1, len(whole)) == b""
    assert node.call("size", 1) == [str(len(whole))]


def test_the_last_lines_of_a_tee_that_outlives_the_script_belong_to_the_attempt(node: ShellNode) -> None:
    run = 'exec > >(while read -r line; do sleep 0.1; echo "$line"; done)\necho one; echo two; exit 3'
    assert node.run(1, Commands(None, run, {})).exit_code == 3
    assert follow_all(node, 1) == b"one\ntwo\n"


def test_a_daemon_that_goes_on_printing_does_not_keep_a_follower(node: ShellNode) -> None:
    node.run(1, Commands(None, "while :; do echo more; done & exit 0", {}))
    whole = follow_all(node, 1)
    assert whole == b"more\n" * (len(whole) // 5) or whole.startswith(b"more\n")
    node.call("stop", 0)


def test_a_tail_that_is_killed_is_not_the_end(node: ShellNode) -> None:
    node.ensure(1, Commands(None, f"echo first; {GATE.format('go')}; echo last", {}))
    process, nonce = node.start("follow", 1, 0)
    assert process.stdout
    assert [process.stdout.readline() for _ in range(3)][2] == b"first\n"
    (tail,) = (each for each in psutil.Process(process.pid).children() if "-f" in each.cmdline())
    tail.kill()
    status, rest = finish(process, nonce)
    assert (status, rest) == (script.AGAIN, b"")
    (node.home / "go").touch()
    node.watch(1)
    assert follow_all(node, 1, len("first\n")) == b"last\n"


def test_next_names_the_attempts_in_turn_and_says_when_there_is_none(node: ShellNode) -> None:
    process, nonce = node.start("next", 0)
    node.run(1, Commands(None, "exit 1", {}))
    assert finish(process, nonce) == (0, b"1\n")
    node.run(2, Commands(None, "true", {}))
    process, nonce = node.start("next", 2)
    assert finish(*node.start("next", 0)) == (0, b"1\n")
    assert finish(*node.start("next", 1)) == (0, b"2\n")
    node.call("close")
    assert finish(process, nonce) == (0, b"none\n")
    assert finish(*node.start("next", 1)) == (0, b"2\n")


def test_whoever_waits_ends_with_its_client(node: ShellNode) -> None:
    node.ensure(1, Commands(GATE.format("never"), None, {}))
    waiting = [node.start("watch", 1), node.start("follow", 1, 0), node.start("next", 1)]
    for process, nonce in waiting:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)][1] == f"{nonce}\n".encode()
    time.sleep(0.2)  # so that each is deep in its waiting; it has to end as well where it is not yet
    for process, _ in waiting:
        process.communicate(timeout=10)
    sessions = {process.pid for process, _ in waiting}
    assert [each for each in node.processes() if session(each) in sessions] == []


def session(process: Found) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def test_a_watch_sees_a_supervisor_that_is_killed_in_setup(node: ShellNode) -> None:
    node.ensure(1, Commands(GATE.format("never"), "true", {}))
    process, nonce = node.start("watch", 1)
    os.kill(node.supervisor(1), signal.SIGKILL)
    status, answer = finish(process, nonce)
    assert status == 0
    assert answer.decode().splitlines()[-1].startswith("attempt 1 supervisor_killed setup - ")
