"""The log store in a directory: one file per log, written at offsets.

`ROOT/<job key>/<task index>/attempt-<n>/node-<rank>.log`, and beside it `node-<rank>.end` once the log has ended.
Writing the bytes of an offset twice changes nothing, so a directory that several workers share needs no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from towline.errors import LogStoreError
from towline.log_store import LogEnd, LogKey

_LOOK_S = 0.05
_MOST_THREADS = 8
_JOB_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TASK = re.compile(r"[0-9]+")
_ATTEMPT = re.compile(r"attempt-([0-9]+)")
_NODE = re.compile(r"node-([0-9]+)\.(?:log|end)")

_Result = TypeVar("_Result")


class DirectoryLogStore:
    """Logs under `root`, readable by their owner alone. Files are touched in threads of its own: a disk may be slow, or
    far away, and must hold up neither the event loop nor other users of threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="log-store")

    async def size(self, log: LogKey) -> int:
        """Bytes kept so far."""
        return await self._in_thread(self._path(log), _size)

    async def append(self, log: LogKey, offset: int, data: bytes) -> int:
        """Keep what of `data` is new."""
        return await self._in_thread(self._path(log), _append, self.root, offset, data)

    async def read(self, log: LogKey, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on."""
        return await self._in_thread(self._path(log), _read, offset, limit)

    async def finish(self, log: LogKey, end: LogEnd) -> None:
        """Record the end; a complete one stays, and of incomplete ones the first."""
        await self._in_thread(self._path(log).with_suffix(".end"), _write_end, self.root, end)

    async def end(self, log: LogKey) -> LogEnd | None:
        """How the log ended."""
        return await self._in_thread(self._path(log).with_suffix(".end"), _read_end)

    async def logs(self, job_key: str, task_index: int | None = None) -> list[LogKey]:
        """The logs that exist, in order; also one that ended without a byte."""
        return await self._in_thread(self._job(job_key), _logs, job_key, task_index)

    async def wait_for_growth(self, log: LogKey, size: int, timeout: float) -> None:
        """A look each 50 ms: it sees what other machines write into a shared directory, which no notification does."""
        limit = time.monotonic() + timeout
        path = self._path(log)
        while not await self._in_thread(path, _grown, size) and time.monotonic() < limit:
            await asyncio.sleep(_LOOK_S)

    def _job(self, job_key: str) -> Path:
        if not _JOB_KEY.fullmatch(job_key):
            raise LogStoreError(f"{job_key!r} is not a job key")
        return self.root / job_key

    def _path(self, log: LogKey) -> Path:
        return self._job(log.job_key) / f"{log.task_index:d}" / f"attempt-{log.attempt:d}" / f"node-{log.rank:d}.log"

    async def _in_thread(self, path: Path, work: Callable[..., _Result], *arguments: Any) -> _Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _guarded, path, work, *arguments)


def _guarded(path: Path, work: Callable[..., _Result], *arguments: Any) -> _Result:
    """The border to the file system: its errors in our words."""
    try:
        return work(path, *arguments)
    except OSError as error:
        raise LogStoreError(f"{path}: {error.strerror or error} (errno {error.errno})") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _grown(path: Path, size: int) -> bool:
    return _size(path) > size or _read_end(path.with_suffix(".end")) is not None


def _append(path: Path, root: Path, offset: int, data: bytes) -> int:
    _make_directories(path.parent, root)
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


def _make_directories(path: Path, root: Path) -> None:
    """Each for its owner alone; `mkdir(parents=True)` would give its mode to the last one only."""
    if path.is_dir():
        return
    if path == root:
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        _make_directories(path.parent, root)
    path.mkdir(mode=0o700, exist_ok=True)


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)


def _write_end(path: Path, root: Path, end: LogEnd) -> None:
    """Whole or not at all. An incomplete end is only ever linked to a free name, so that however two writers race, it
    never takes the place of a complete one."""
    _make_directories(path.parent, root)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"size": end.size, "complete": end.complete, "note": end.note}, file)
        if end.complete:
            part.rename(path)
        elif not path.exists():
            with contextlib.suppress(FileExistsError):
                os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def _read_end(path: Path) -> LogEnd | None:
    try:
        data = json.loads(path.read_bytes())
        return LogEnd(int(data["size"]), bool(data["complete"]), str(data.get("note", "")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # torn by a power failure, or not ours: the log then counts as not ended


def _logs(root: Path, job_key: str, task_index: int | None) -> list[LogKey]:
    found: set[LogKey] = set()
    tasks = [str(task_index)] if task_index is not None else [name for name in _names(root) if _TASK.fullmatch(name)]
    for task in tasks:
        for attempt in map(_ATTEMPT.fullmatch, _names(root / task)):
            if attempt is None:
                continue
            for node in map(_NODE.fullmatch, _names(root / task / attempt[0])):
                if node is not None:
                    found.add(LogKey(job_key, int(task), int(attempt[1]), int(node[1])))
    return sorted(found)


def _names(directory: Path) -> Iterator[str]:
    """What is in it; nothing when it is not there, or no directory."""
    try:
        with os.scandir(directory) as entries:
            yield from [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
