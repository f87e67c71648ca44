"""What a job did, by witnesses that no fault of Towline's can bribe.

The *counter task* prints numbered lines and identical ones, and the same into a file. The *run ledger* is a file
outside the nodes in which every attempt enters its start and its end. The *node ledger* is the cloud's own
(`tests.support.cloud`). The *process oracle* looks for whatever carries the job's mark.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import psutil

from tests.support.system import System, until


class Diary:
    """The run ledger of one task, and the task that keeps it."""

    def __init__(self, path: Path, pause_s: float = 0.05) -> None:
        self.path = path
        self.pause_s = pause_s
        self.go = path.with_suffix(".go")

    @property
    def task(self) -> str:
        """Counts until it may go on; the last line says how far it came. `say` prints, also into a file."""
        diary, go = shlex.quote(str(self.path)), shlex.quote(str(self.go))
        return (
            f'say() {{ echo "$@"; echo "$@" >> {diary}.$TOWLINE_ATTEMPT; }}\n'
            f'echo "start $TOWLINE_ATTEMPT $$" >> {diary}; n=0\n'
            f"until [ -e {go} ]; do n=$((n+1)); say line $n; say same; sleep {self.pause_s}; done\n"
            f'echo "end $TOWLINE_ATTEMPT" >> {diary}; say counted $n\n'
        )

    def printed(self, attempt: int = 1) -> bytes:
        """What the attempt itself says that it printed."""
        return self.path.with_name(f"{self.path.name}.{attempt}").read_bytes()

    def lines(self, word: str) -> list[str]:
        """The entries that begin with `word`."""
        text = self.path.read_text() if self.path.exists() else ""
        return [line for line in text.splitlines() if line.startswith(word)]

    async def started(self, times: int = 1, limit_s: float = 60) -> str:
        """Wait for so many starts; the process id of the last."""
        await until(lambda: len(self.lines("start")) >= times, f"start {times}", limit_s)
        return self.lines("start")[times - 1].split()[2]

    def let_go(self) -> None:
        """Let the task end."""
        self.go.touch()


def assert_counted(log: bytes) -> None:
    """Every line of a counter task is there once, in order."""
    lines = log.decode().splitlines()
    total = int(lines[-1].removeprefix("counted "))
    assert lines[:-1] == [text for number in range(1, total + 1) for text in (f"line {number}", "same")]


async def log_grows(system: System, job_id: str) -> None:
    """Wait until something new of the first attempt's output arrives in the log store."""
    before = len(await system.log(job_id))

    async def grown() -> bool:
        return len(await system.log(job_id)) > before

    await until(grown, "the log is streamed")


async def says(system: System, job_id: str, word: bytes, attempt: int = 1, limit_s: float = 60) -> None:
    """Wait until an attempt's log holds `word`."""

    async def said() -> bool:
        return word in await system.log(job_id, attempt=attempt)

    await until(said, f"{word!r} in the log of attempt {attempt}", limit_s)


def processes_of_job(job_key: str) -> list[str]:
    """The process oracle: what still runs with the job's mark in its environment, as "pid command"."""
    mark = f"TOWLINE_MARK={job_key}/".encode()
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if process.info["status"] != psutil.STATUS_ZOMBIE and mark in environment:
            found.append(f"{process.pid} {' '.join(process.info['cmdline'] or [])}")
    return found
