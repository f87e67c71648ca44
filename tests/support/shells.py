"""Nodes without SSH: the node script under each of the shells that it must run under."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from towline.node import script
from towline.node.script import Commands, NodeAttempt

SHELLS = ["dash", "bash", "busybox"]
JOB = "job-0123456789"


def search_path(shell: str, directory: Path) -> str:
    """A PATH on which `sh` is that shell; for busybox every tool is its own, as on Alpine with bash and
    flock."""
    directory.mkdir(parents=True)
    if shell != "busybox":
        (directory / "sh").symlink_to(found(shell))
        return f"{directory}:/usr/bin:/bin:/usr/sbin:/sbin"
    busybox = found("busybox")
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True).stdout.split():
        (directory / applet).symlink_to(busybox)
    for tool in ("bash", "flock", "nohup"):
        (directory / tool).unlink(missing_ok=True)
        (directory / tool).symlink_to(found(tool))
    return str(directory)


def found(tool: str) -> str:
    """Where a program that a test needs is."""
    path = shutil.which(tool)
    assert path, f"{tool} is not installed; tests/run installs it"
    return path


@dataclass
class ShellNode:
    """A home directory, and a PATH with the shell under test."""

    home: Path
    path: str

    @property
    def environment(self) -> dict[str, str]:
        """What a login gives to a command."""
        return {"HOME": str(self.home), "PATH": self.path, "USER": "tester"}

    def task(self, index: int = 0) -> Path:
        """The directory of a task."""
        return self.home / ".towline" / JOB / str(index)

    def start(self, name: str, *arguments: int, index: int = 0) -> tuple[subprocess.Popen[bytes], str]:
        """A command of the node script that runs, and its nonce."""
        nonce = script.new_nonce()
        line = script.command(nonce, name, JOB, index, *arguments)
        shell = ["sh", "-c", line]
        process = subprocess.Popen(
            shell,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            executable=shutil.which("sh", path=self.path),
            start_new_session=True,
        )
        return process, nonce

    def call(self, name: str, *arguments: int, stdin: bytes = b"", index: int = 0) -> list[str]:
        """The lines that a command of the node script answers with."""
        process, nonce = self.start(name, *arguments, index=index)
        stdout, stderr = process.communicate(stdin, timeout=60)
        assert process.returncode == 0, (process.returncode, stderr)
        answer = script.Answer(nonce)
        text = answer.feed(stdout).decode()
        assert answer.begun
        return text.splitlines()

    def install(self) -> None:
        """Put the node script where it is called from."""
        command = ["sh", "-c", script.install_command()]
        subprocess.run(command, env=self.environment, input=script.source(), check=True, timeout=60)

    def ensure(self, attempt: int, commands: Commands, index: int = 0) -> NodeAttempt:
        """Start an attempt, or attach to it."""
        (line,) = self.call("ensure", attempt, stdin=script.payload(commands), index=index)
        return script.parse_attempt(line)

    def watch(self, attempt: int, index: int = 0) -> NodeAttempt:
        """Wait for the end of an attempt."""
        process, nonce = self.start("watch", attempt, index=index)
        status, answer = finish(process, nonce)
        assert status == 0
        return script.parse_attempt(answer.decode().splitlines()[-1])

    def run(self, attempt: int, commands: Commands, index: int = 0) -> NodeAttempt:
        """Run an attempt to its end."""
        self.ensure(attempt, commands, index)
        return self.watch(attempt, index)

    def log(self, attempt: int, index: int = 0) -> bytes:
        """What an attempt printed."""
        return (self.task(index) / f"attempt-{attempt}" / "log").read_bytes()

    def supervisor(self, attempt: int, index: int = 0) -> int:
        """The pid of an attempt's supervisor."""
        return int((self.task(index) / f"attempt-{attempt}" / "pid").read_text().split()[0])

    def processes(self) -> list[Found]:
        """Every process that was started on this node and lives."""
        return processes_at(self.home)


def finish(process: subprocess.Popen[bytes], nonce: str) -> tuple[int, bytes]:
    """The exit status of a command and its answer; its stdin stays open until it has ended."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    with process:
        stdout = process.stdout.read()
        print(process.stderr.read().decode())
        process.stdin.close()
    return process.returncode, script.Answer(nonce).feed(stdout)


@dataclass(frozen=True)
class Found:
    """A process that lived when it was looked for."""

    pid: int
    words: tuple[str, ...]

    def send(self, signal_number: int) -> None:
        """Signal it, if it still lives."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal_number)


def processes_at(home: Path) -> list[Found]:
    """Every live process whose HOME is `home`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(Found(process.pid, tuple(process.cmdline())))
    return found


@contextmanager
def shell_node(shell: str, directory: Path) -> Iterator[ShellNode]:
    """A node with the node script installed; everything that still runs there is killed at the end."""
    home = directory / "home"
    home.mkdir()
    node = ShellNode(home, search_path(shell, directory / "bin"))
    node.install()
    yield node
    end_all(home)


def end_all(home: Path) -> None:
    """Kill everything that runs at `home`."""
    while left := processes_at(home):
        for process in left:
            process.send(signal.SIGKILL)
