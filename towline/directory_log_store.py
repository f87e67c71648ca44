"""The log store in a directory: one file per log, written at offsets.

`ROOT/<job key>/<task index>/attempt-<n>/node-<rank>.log`, and beside it `node-<rank>.end` once the log has
ended. Writing the
bytes of an offset twice changes nothing, so a directory that several workers share needs no locks.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from towline.errors import LogStoreError
from towline.log_store import LogEnd, LogKey

_LOOK_S = 0.05
_JOB_KEY = re.compile(r"^[A-Za-z0-9_-]{1,100}$")
_ATTEMPT = re.compile(r"^attempt-(\d+)$")
_NODE = re.compile(r"^node-(\d+)\.log$")

_Result = TypeVar("_Result")


class DirectoryLogStore:
    """Logs under `root`, readable by their owner alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def size(self, log: LogKey) -> int:
        """Bytes kept so far."""
        return self._guarded(self._path(log), _size)

    async def append(self, log: LogKey, offset: int, data: bytes) -> int:
        """Keep what of `data` is new. Files are written in a thread: a disk may be slow, or far away."""
        return await asyncio.to_thread(self._guarded, self._path(log), _append, offset, data)

    async def read(self, log: LogKey, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on."""
        return self._guarded(self._path(log), _read, offset, limit)

    async def finish(self, log: LogKey, end: LogEnd) -> None:
        """Record the end; a complete one stays."""
        earlier = await self.end(log)
        if earlier is None or not earlier.complete:
            self._guarded(self._path(log).with_suffix(".end"), _write_end, end)

    async def end(self, log: LogKey) -> LogEnd | None:
        """How the log ended."""
        return self._guarded(self._path(log).with_suffix(".end"), _read_end)

    async def logs(self, job_key: str, task_index: int | None = None) -> list[LogKey]:
        """The logs that exist, in order."""
        root = self._job(job_key)
        return self._guarded(root, _logs, job_key, task_index)

    async def wait_for_growth(self, log: LogKey, size: int, timeout: float) -> None:
        """A look each 50 ms: it sees what other machines write into a shared directory, which no notification does."""
        end = time.monotonic() + timeout
        while await self.size(log) <= size and await self.end(log) is None and time.monotonic() < end:
            await asyncio.sleep(_LOOK_S)

    def _job(self, job_key: str) -> Path:
        if not _JOB_KEY.match(job_key):
            raise LogStoreError(f"{job_key!r} is not a job key")
        return self._root / job_key

    def _path(self, log: LogKey) -> Path:
        return self._job(log.job_key) / f"{log.task_index:d}" / f"attempt-{log.attempt:d}" / f"node-{log.rank:d}.log"

    def _guarded(self, path: Path, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """The border to the file system: its errors in our words."""
        try:
            return work(path, *arguments)
        except OSError as error:
            raise LogStoreError(f"{path}: {error.strerror} (errno {error.errno})") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _append(path: Path, offset: int, data: bytes) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if offset > size:
            raise LogStoreError(f"{path}: bytes at {offset} would leave a hole after {size}")
        new = memoryview(data)[size - offset :]
        while new:
            written = os.pwrite(descriptor, new, size)
            new, size = new[written:], size + written
        return size
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)


def _write_end(path: Path, end: LogEnd) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"size": end.size, "complete": end.complete, "note": end.note}, file)
    part.rename(path)


def _read_end(path: Path) -> LogEnd | None:
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return None  # being written, or not ours
    return LogEnd(int(data["size"]), bool(data["complete"]), str(data.get("note", "")))


def _logs(root: Path, job_key: str, task_index: int | None) -> list[LogKey]:
    found = []
    for task in root.iterdir() if root.is_dir() else []:
        if not task.name.isdigit() or (task_index is not None and int(task.name) != task_index):
            continue
        for attempt in task.iterdir():
            number = _ATTEMPT.match(attempt.name)
            names = [_NODE.match(each.name) for each in attempt.iterdir()] if number else []
            found += [
                LogKey(job_key, int(task.name), int(number[1]), int(name[1])) for name in names if number and name
            ]
    return sorted(found)
