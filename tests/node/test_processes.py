"""Stopping ends the whole tree, also what detached itself, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import psutil

from tests.support.shells import ShellNode
from towline.node.script import Commands

READY = "echo ready >> ~/ready; sleep 1000"
DETACHED = f"""
setsid sh -c '{READY}' &
(setsid sh -c '{READY}' &) &
nohup sh -c '{READY}' >/dev/null 2>&1 &
sh -c 'trap "" TERM HUP INT; {READY}; sleep 1000; sleep 1000' &
python3 -c 'import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.path.expanduser("~/ready"), "a").write("ready\\n")
        time.sleep(1000)
    os._exit(0)' &
"""
DETACHED_COUNT = 5
# Without the mark, a process is found for as long as its parent lives.
UNMARKED = f"""setsid sh -c 'env -i HOME="$HOME" PATH="$PATH" sh -c "{READY}"' &
"""


def wait_until_ready(node: ShellNode, count: int) -> None:
    path = node.home / "ready"
    while not path.exists() or path.read_text().count("ready") < count:
        time.sleep(0.02)


def test_stop_ends_every_process_also_those_that_detached_themselves(node: ShellNode) -> None:
    node.path += ":/usr/bin"  # for python
    node.ensure(1, Commands(None, DETACHED + UNMARKED + "wait; sleep 1000", {}))
    wait_until_ready(node, DETACHED_COUNT + 1)
    node.call("stop", 20)
    assert node.processes() == []
    (line,) = node.call("ledger")
    assert line.startswith("attempt 1 ended run 143 ")
    node.call("stop", 20)
    assert node.call("closed") == ["yes"]


def test_what_an_attempt_left_behind_dies_with_the_next(node: ShellNode) -> None:
    node.path += ":/usr/bin"
    assert node.run(1, Commands(None, DETACHED + "exit 1", {})).exit_code == 1
    wait_until_ready(node, DETACHED_COUNT)
    node.ensure(2, Commands(None, "echo up; exec sleep 1000", {}))
    while node.log(2) != b"up\n":
        time.sleep(0.02)
    supervisor = node.supervisor(2)
    own = {supervisor, *(child.pid for child in psutil.Process(supervisor).children(recursive=True))}
    assert [each for each in node.processes() if each.pid not in own] == []


def test_frozen_processes_die_as_well(node: ShellNode) -> None:
    node.ensure(1, Commands(None, f"trap '' TERM; {READY}; sleep 1000", {}))
    wait_until_ready(node, 1)
    for process in node.processes():
        process.send(signal.SIGSTOP)
    node.call("stop", 10)
    assert node.processes() == []
    assert node.call("ledger")[0].startswith("attempt 1 ended run 137 ")


def test_the_grace_is_given_to_who_uses_it(node: ShellNode) -> None:
    run = f"trap 'echo cleaning; sleep 0.3; echo cleaned; exit 9' TERM; ({READY}) & wait"
    node.ensure(1, Commands(None, run, {}))
    wait_until_ready(node, 1)
    node.call("stop", 3000)
    assert node.log(1).startswith(b"cleaning\n")
    assert node.log(1).endswith(b"cleaned\n")
    assert node.call("ledger")[0].startswith("attempt 1 ended run 9 ")


def test_setup_that_is_stopped_and_says_it_succeeded_is_not_followed_by_run(node: ShellNode) -> None:
    setup = f"trap 'exit 0' TERM; ({READY}) & wait"
    node.ensure(1, Commands(setup, "echo never", {}))
    wait_until_ready(node, 1)
    node.call("stop", 300)
    assert node.call("ledger")[0].startswith("attempt 1 ended run 143 ")
    assert node.log(1) == b""


def test_task_1_is_not_task_10_and_other_processes_are_left_alone(node: ShellNode) -> None:
    other = subprocess.Popen(["sleep", "1000"], env={**node.environment, "TOWLINE_MARK": "another-job/1;"})
    node.ensure(1, Commands(None, READY, {}), index=1)
    node.ensure(1, Commands(None, READY, {}), index=10)
    wait_until_ready(node, 2)
    node.call("stop", 10, index=1)
    assert node.call("ledger", index=1)[0].startswith("attempt 1 ended")
    assert node.call("ledger", index=10)[0].startswith("attempt 1 running")
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_supervisor_that_hangs_does_not_keep_a_stop_waiting(node: ShellNode) -> None:
    node.ensure(1, Commands(None, READY, {}))
    wait_until_ready(node, 1)
    os.kill(node.supervisor(1), signal.SIGSTOP)
    node.call("stop", 10)
    assert node.processes() == []
    assert node.call("ledger")[0].startswith("attempt 1 ended")


def test_a_stop_before_anything_was_started_leaves_an_attempt_that_has_ended(node: ShellNode) -> None:
    node.ensure(1, Commands("true", "sleep 1000", {}))
    (node.task() / "attempt-1" / "pid").rename(node.home / "pid")
    os.kill(int((node.home / "pid").read_text().split()[0]), signal.SIGKILL)
    assert node.call("ledger")[0].startswith("attempt 1 running")
    node.call("stop", 10)
    assert node.call("ledger")[0].split()[2] == "ended"
    assert node.processes() == []


def test_names_of_processes_may_hold_anything(node: ShellNode) -> None:
    node.path += ":/usr/bin"
    rename = 'open("/proc/self/comm", "w").write("a) Z\\n(1 2")'
    program = f'import time; {rename}; print("named", flush=True); time.sleep(99)'
    node.ensure(1, Commands(None, f"env -i PATH=/usr/bin HOME=$HOME python3 -c '{program}'", {}))
    while node.log(1) != b"named\n":
        time.sleep(0.02)
    node.call("stop", 10)
    assert node.processes() == []
    assert psutil.pid_exists(os.getpid())
