"""What every figure needs: a system in processes of its own, an OpenSSH node beside it, and clocks on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.openssh import OpenSsh, open_ssh
from tests.support.system import Server, System, pool_of, running_system

AS_DEPLOYED = {
    "TOWLINE_HEARTBEAT_TIMEOUT": "30",
    "TOWLINE_HEARTBEAT_INTERVAL": "5",
    "TOWLINE_SWEEP_INTERVAL": "30",
}
POOL = {"infra": "ssh/lab"}
MANY_SESSIONS = ("MaxStartups 1000", "MaxSessions 1000")


@dataclass
class Bench:
    """A running system with one worker, and how much is to be measured."""

    system: System
    ssh: OpenSsh
    directory: Path
    repeat: int
    quick: bool

    def size(self, quick: int, whole: int) -> int:
        """How many of something: fewer in a quick run."""
        return quick if self.quick else whole

    def path(self, name: str) -> Path:
        """A file of its own for a task to write into."""
        self._made = getattr(self, "_made", 0) + 1
        return self.directory / f"{name}-{self._made}"

    async def ssh_true(self) -> float:
        """Seconds that OpenSSH's client takes for `ssh node true` on a fresh connection: median of five."""
        return statistics.median([await self._timed_ssh("true") for _ in range(5)])

    async def ssh_cat(self, file: Path) -> float:
        """Seconds that `ssh node cat file` takes."""
        return await self._timed_ssh(f"cat {shlex.quote(str(file))}")

    async def _timed_ssh(self, command: str) -> float:
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *["ssh", *options, "-i", str(self.ssh.identity), "-p", str(self.ssh.port), "127.0.0.1", command],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        if await process.wait() != 0:
            raise RuntimeError(f"`ssh 127.0.0.1 {command}` failed: the figures need OpenSSH's client and server")
        return time.monotonic() - began

    async def events(self, job_id: str) -> list[Any]:
        """The events of a job's history."""
        history = await self.system.client.get_workflow_handle(job_id).fetch_history()
        return list(history.events)

    async def provision_s(self, job_id: str) -> list[float]:
        """Seconds from asking for a task's nodes to having them, for each time this was done."""
        asked: dict[int, float] = {}
        took: list[float] = []
        for event in await self.events(job_id):
            at = event.event_time.ToNanoseconds() / 1e9
            if event.activity_task_scheduled_event_attributes.activity_type.name == "provision":
                asked[event.event_id] = at
            scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
            if scheduled in asked:
                took.append(at - asked[scheduled])
        return took


@asynccontextmanager
async def running_bench(directory: Path, repeat: int, quick: bool) -> AsyncIterator[Bench]:
    """A server, a worker and a node, all gone afterwards."""
    server = Server(directory)
    server.start()
    try:
        with open_ssh(directory / "openssh", *MANY_SESSIONS) as ssh:
            async with running_system(directory, server) as system:
                system.extra_environment = dict(AS_DEPLOYED)
                pool_of(system, ssh)
                await system.worker()
                yield Bench(system, ssh, directory, repeat, quick)
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.stop()


def stamp(path: Path, word: str) -> str:
    """Shell that enters `word` and the time, in seconds since the epoch, into a file."""
    return f'echo "{word} $(date +%s.%N)" >> {shlex.quote(str(path))}'


def stamps(path: Path, word: str) -> list[float]:
    """The times that were entered under `word`."""
    if not path.exists():
        return []
    entries = (line.split() for line in path.read_text().splitlines())
    return [float(entry[1]) for entry in entries if entry[0] == word]
