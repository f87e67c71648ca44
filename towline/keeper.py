"""The keeper: the detached process that keeps the server and the worker of an embedded stack running until SIGTERM."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from towline import processes
from towline.config import Config
from towline.contract import SEARCH_ATTRIBUTE_TYPES
from towline.embedded import END_LIMIT_S, StackFiles, StackInfo, temporal

RETENTION_DAYS = 30
_SHORTEST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_HEALTHY_AFTER_S = 30.0


class _Child:
    """A process that is started again when it ends: at once, then after growing pauses while it keeps ending early."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._name = name
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._pause_s = 0.0
        self._due: float | None = 0.0  # None while it lives

    def tend(self) -> float | None:
        """Start it if that is due. Returns when it will be, on the monotonic clock; None while it lives."""
        now = time.monotonic()
        if self._due is None and self._process is not None and self._process.poll() is not None:
            healthy = now - self._started > _HEALTHY_AFTER_S
            self._pause_s = 0.0 if healthy else min(max(_SHORTEST_PAUSE_S, 2 * self._pause_s), _LONGEST_PAUSE_S)
            self._due = now + self._pause_s
            _say(f"{self._name} ended with code {self._process.returncode}; again in {self._pause_s:g} s")
        if self._due is not None and now >= self._due:
            self._process, self._started, self._due = self._start(), now, None
        return self._due

    def end(self, limit_s: float) -> None:
        """SIGTERM, and SIGKILL when that does not end it within `limit_s`."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Keeper:
    """The server and the worker of the stack under one home."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = StackFiles(config.home)
        self._stopping = False
        self._server = _Child("server", self._start_server)
        self._worker = _Child("worker", self._start_worker)
        known = self._files.read()
        ports = (known.port, known.ui_port) if known else (0, 0)
        self._info = StackInfo(*ports, keeper=processes.identity(os.getpid()))

    def run(self) -> None:
        """Until SIGTERM; then the worker ends first, so that it can still say good-bye to the server."""
        wake = self._wake_on_signals()
        while not self._stopping:
            due = [each for each in (self._server.tend(), self._worker.tend()) if each is not None]
            timeout = max(0.0, min(due) - time.monotonic()) if due else None
            if select.select([wake], [], [], timeout)[0]:
                wake.recv(4096)
        self._worker.end(self._config.graceful_shutdown_s + END_LIMIT_S)
        self._server.end(END_LIMIT_S)

    def _wake_on_signals(self) -> socket.socket:
        """A socket that becomes readable when a child ends or the keeper is to stop."""
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        woken.setblocking(False)
        self._woken = woken  # kept open for as long as the signals come
        signal.set_wakeup_fd(woken.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        return wake

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _start_server(self) -> subprocess.Popen[bytes]:
        self._settle_ports()
        attributes = [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTE_TYPES.items()]
        command = [
            temporal(), "server", "start-dev",
            "--ip", "127.0.0.1", "--port", str(self._info.port), "--ui-port", str(self._info.ui_port),
            "--db-filename", str(self._files.database),
            "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal",
            "--dynamic-config-value", "system.enableCancelActivityWorkerCommand=true",
            "--dynamic-config-value", "frontend.WorkerCommandsEnabled=true",
            "--dynamic-config-value", "frontend.WorkerHeartbeatsEnabled=true",
            "--log-level", "error", *attributes,
        ]  # fmt: skip
        return self._spawn("server", command, {})

    def _settle_ports(self) -> None:
        """The ports of the last time, so that links into the Web UI stay good; others when somebody else has them."""
        if _free(self._info.port) and _free(self._info.ui_port):
            return
        port, ui_port = _free_ports()
        self._info = replace(self._info, port=port, ui_port=ui_port)
        self._worker.end(END_LIMIT_S)  # it knows the old address

    def _start_worker(self) -> subprocess.Popen[bytes]:
        self._files.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "towline.worker"]
        command += ["--ready-file", str(self._files.ready), "--retention-days", str(RETENTION_DAYS)]
        environment = {
            "TEMPORAL_ADDRESS": self._info.address,
            "TEMPORAL_NAMESPACE": "default",
            "TOWLINE_HEARTBEAT_INTERVAL": str(self._config.heartbeat_interval_s),
        }
        return self._spawn("worker", command, environment)

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start it with nothing of the user's own Temporal configuration, and note who it is."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}
        environment = {**inherited, "TEMPORAL_CONFIG_FILE": os.devnull, **environment}
        child = processes.detached(command, environment, self._files.log(name))
        who = processes.identity(child.pid)
        self._info = replace(self._info, server=who) if name == "server" else replace(self._info, worker=who)
        self._files.write(self._info)
        return child


def main() -> None:
    """Keep the stack of this environment's home."""
    Keeper(Config.from_environment()).run()


def _free(port: int) -> bool:
    if not port:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def _free_ports() -> tuple[int, int]:
    """Two that are free now, held together so that they differ."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _say(text: str) -> None:
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
