"""Processes that outlive whoever started them: who they are, whether they live, and ending them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

import psutil

_LARGEST_LOG = 8 * 1024 * 1024
_KILL_LIMIT_S = 10.0


class Identity(NamedTuple):
    """A process for ever: its number, and when it started, so that another with the same number is told apart."""

    pid: int
    started: str


def identity(pid: int) -> Identity | None:
    """Who runs under this number now; None when nobody does."""
    started = _started(pid)
    return Identity(pid, started) if started else None


def find(known: Identity | None) -> psutil.Process | None:
    """That very process, while it lives."""
    if known is None or _started(known.pid) != known.started:
        return None
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(known.pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def end(known: Identity | None, limit_s: float) -> bool:
    """Ask the process to end, and kill it when it has not within `limit_s`; False when it did not live."""
    process = find(known)
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(limit_s)
            return True
        process.kill()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(_KILL_LIMIT_S)
    return True


def detached(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A process that outlives this one, its output in `log`, which begins anew when it has grown large."""
    if log.exists() and log.stat().st_size > _LARGEST_LOG:
        log.replace(log.with_name(log.name + ".1"))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=environment,
            cwd="/",
            start_new_session=True,
            umask=0o077,  # a database and logs are their owner's alone, whatever the directory they lie in
        )
    finally:
        os.close(descriptor)


def leave(code: int) -> NoReturn:
    """Exit at once. The interpreter's own way out would tear down Temporal's threads while they run, which ends some
    processes with a crash (github.com/temporalio/sdk-python/issues/300)."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _started(pid: int) -> str:
    """The boot, and clock ticks since then, which setting the clock does not move; empty when there is no process.
    Raises OSError when that cannot be known now: out of descriptors is not gone."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _started_elsewhere(pid)
    except (ProcessLookupError, IndexError):
        return ""  # it ended while it was looked at
    return f"{boot}:{ticks}"


def _started_elsewhere(pid: int) -> str:
    """The same on a system without /proc."""
    with contextlib.suppress(psutil.Error):
        return f"{psutil.Process(pid).create_time():.2f}"
    return ""
