"""Where the output of every attempt is kept, outside the nodes: the protocol, and the version in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, order=True)
class LogKey:
    """One log: what one attempt printed on one node, byte for byte."""

    job_key: str
    task_index: int
    attempt: int
    rank: int


@dataclass(frozen=True)
class LogEnd:
    """Said once nothing more will come. `complete` is false when bytes are missing, and `note` then says why."""

    size: int
    complete: bool
    note: str = ""


class LogStore(Protocol):
    """Bytes addressed by log and offset. Several writers of the same log, one of them dying or thawed, end with the
    same bytes, since each writes what the node printed at that offset. Every method may raise LogStoreError."""

    async def size(self, log: LogKey) -> int:
        """Bytes kept so far; 0 for a log that has none."""

    async def append(self, log: LogKey, offset: int, data: bytes) -> int:
        """Keep `data` as the bytes from `offset` on; returns the new size. Bytes already kept are left alone; an
        `offset` beyond the size is refused, so that there is never a hole."""

    async def read(self, log: LogKey, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on; empty at the end."""

    async def finish(self, log: LogKey, end: LogEnd) -> None:
        """Record that the log has ended. A complete end is never replaced by an incomplete one."""

    async def end(self, log: LogKey) -> LogEnd | None:
        """How the log ended; None while it may still grow."""

    async def logs(self, job_key: str, task_index: int | None = None) -> list[LogKey]:
        """The logs that exist, ordered by task, attempt and rank."""

    async def wait_for_growth(self, log: LogKey, size: int, timeout: float) -> None:
        """Return as soon as the log is larger than `size` or has ended, and after `timeout` seconds at the latest."""
