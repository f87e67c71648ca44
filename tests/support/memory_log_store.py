"""A log store in memory, for tests: it fulfils the same contract suite as the one in a directory."""

from __future__ import annotations

import asyncio

from towline.errors import LogStoreError
from towline.log_store import LogEnd, LogKey


class MemoryLogStore:
    """`broken`: while set, every call fails with it."""

    def __init__(self) -> None:
        self._bytes: dict[LogKey, bytearray] = {}
        self._ends: dict[LogKey, LogEnd] = {}
        self._changed = asyncio.Condition()
        self.broken: str | None = None

    async def size(self, log: LogKey) -> int:
        self._check()
        return len(self._bytes.get(log, b""))

    async def append(self, log: LogKey, offset: int, data: bytes) -> int:
        self._check()
        kept = self._bytes.get(log, bytearray())
        if offset > len(kept):
            raise LogStoreError(f"bytes at {offset} would leave a hole after {len(kept)}")
        kept += data[len(kept) - offset :]
        self._bytes[log] = kept
        await self._tell()
        return len(kept)

    async def read(self, log: LogKey, offset: int, limit: int) -> bytes:
        self._check()
        return bytes(self._bytes.get(log, b"")[offset : offset + limit])

    async def finish(self, log: LogKey, end: LogEnd) -> None:
        self._check()
        if end.complete or log not in self._ends:
            self._ends[log] = end
        await self._tell()

    async def end(self, log: LogKey) -> LogEnd | None:
        self._check()
        return self._ends.get(log)

    async def logs(self, job_key: str, task_index: int | None = None) -> list[LogKey]:
        self._check()
        known = set(self._bytes) | set(self._ends)
        return sorted(log for log in known if log.job_key == job_key and task_index in (None, log.task_index))

    async def wait_for_growth(self, log: LogKey, size: int, timeout: float) -> None:
        self._check()
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._grown(log, size)), timeout)
            except TimeoutError:
                return

    def _grown(self, log: LogKey, size: int) -> bool:
        return len(self._bytes.get(log, b"")) > size or log in self._ends

    def _check(self) -> None:
        if self.broken:
            raise LogStoreError(self.broken)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
