"""Running the command line as a process of its own, with pipes or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

COMMAND = [sys.executable, "-m", "towline"]
ROOT = Path(__file__).parents[2]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of a user who has only a home of Towline's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "TOWLINE_"))}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        kept.pop(name, None)
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "TOWLINE_HOME": str(home), **more}


def run(*arguments: str, env: Mapping[str, str], timeout: float = 90) -> subprocess.CompletedProcess[bytes]:
    """The command run to its end."""
    return subprocess.run([*COMMAND, *arguments], env=dict(env), capture_output=True, timeout=timeout, check=False)


class Terminal:
    """A command on a terminal of its own; `screen` is all that the terminal was sent."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self.screen = b""
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, text: bytes, timeout: float = 60) -> None:
        """Return once `text` was sent."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.screen, timeout), self.screen

    def press_ctrl_c(self) -> None:
        """As a person does."""
        os.write(self._descriptor, b"\x03")

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 65536):
                with self._changed:
                    self.screen += data
                    self._changed.notify_all()


@contextlib.contextmanager
def terminal(*arguments: str, env: Mapping[str, str], columns: int = 80) -> Iterator[Terminal]:
    """The command on a terminal `columns` wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=dict(env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
