"""Bringing what a task prints on one node to the log store, attempt after attempt, each byte once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from towline.contract import TailLogsInput
from towline.errors import LogStoreError, TowlineError
from towline.log_store import LogEnd, LogKey, LogStore
from towline.masking import Mask
from towline.providers.protocol import Provider
from towline.ssh.client import Connection, SshClient
from towline.supervision import NodeTask

RETRY_PAUSE_S = 2.0
MOST_LAST_LINES_BYTES = 6000
_KEPT_FOR_LAST_LINES = 16 * 1024
_MARK_LIMIT_S = 5.0
_logger = logging.getLogger(__name__)


@dataclass
class TailProgress:
    """How far the log store is, and the end of what it has."""

    attempt: int
    offset: int = 0
    recent: bytearray = field(default_factory=bytearray)
    note: str = ""

    def begin(self, attempt: int, offset: int) -> None:
        """Another attempt's log, from `offset` on."""
        self.attempt, self.offset = attempt, offset
        self.recent.clear()

    def add(self, data: bytes, offset: int) -> None:
        """`data` is kept; the log store is at `offset` now."""
        self.offset = offset
        self.recent += data[-_KEPT_FOR_LAST_LINES:]
        del self.recent[:-_KEPT_FOR_LAST_LINES]


class Tailing:
    """Follows every attempt on one node until the task is closed there. Trouble with the node or the store is waited
    out here, since the bytes are safe on the node meanwhile."""

    def __init__(
        self,
        request: TailLogsInput,
        ssh: SshClient,
        provider: Provider,
        store: LogStore,
        mask: Mask,
        progress: TailProgress,
        report: Callable[[], None],
    ) -> None:
        self._request = request
        self._ssh = ssh
        self._provider = provider
        self._store = store
        self._mask = mask
        self._progress = progress
        self._report = report
        self._after = progress.attempt - 1
        self._closed = False
        self._got_on = time.monotonic()

    async def run(self) -> None:
        """Returns when the task is closed on the node and every byte of every attempt is in the log store; or when the
        store has taken nothing for the drain limit after the task was closed: the log is marked incomplete then."""
        while True:
            try:
                async with self._ssh.connect(self._provider.access(self._request.node)) as connection:
                    await self._through(connection)
                    return
            except TowlineError as error:
                self._progress.note = f"{type(error).__name__}: {error}"
                self._report()
                if self._closed and time.monotonic() - self._got_on > self._request.settings.drain_limit_s:
                    await self.mark_incomplete(self._progress.note)
                    return
                await asyncio.sleep(RETRY_PAUSE_S)

    async def mark_incomplete(self, why: str) -> None:
        """Say in the log store that the log being followed will not grow to its end; a store that cannot take even
        this is not waited for."""
        try:
            await asyncio.wait_for(self._mark_incomplete(why), _MARK_LIMIT_S)
        except (LogStoreError, TimeoutError) as error:
            _logger.warning("the log could not be marked incomplete: %s", error)

    async def _mark_incomplete(self, why: str) -> None:
        log = self._log(self._progress.attempt)
        if await self._store.end(log) is None:
            await self._store.finish(log, LogEnd(await self._store.size(log), complete=False, note=why))

    async def _through(self, connection: Connection) -> None:
        task = NodeTask(connection, self._request.job.key, self._request.task_index)
        try:
            while (attempt := await task.next_attempt(self._after)) is not None:
                await self._follow(task, attempt)
                self._after = attempt
        except LogStoreError:
            await self._look_whether_closed(task)
            raise

    async def _look_whether_closed(self, task: NodeTask) -> None:
        if not self._closed and await task.is_closed():
            self._closed, self._got_on = True, time.monotonic()

    async def _follow(self, task: NodeTask, attempt: int) -> None:
        log = self._log(attempt)
        offset = await self._store.size(log)
        self._progress.begin(attempt, offset)
        self._progress.note = ""
        self._report()
        async for data in self._masked(task, attempt, offset):
            kept = await self._store.append(log, offset, data)
            offset += len(data)
            self._progress.add(data, max(kept, offset))
            self._got_on = time.monotonic()
            self._report()
        await self._store.finish(log, LogEnd(offset, complete=True))

    async def _masked(self, task: NodeTask, attempt: int, offset: int) -> AsyncIterator[bytes]:
        """The log's bytes from `offset` on. Reading begins a little earlier, so that a secret around `offset`, where an
        earlier worker may have left off in the middle of a write, is seen whole."""
        begin = max(0, offset - self._mask.context)
        known = offset - begin
        stream = self._mask.stream()
        async for data in task.follow(attempt, begin):
            masked = stream.feed(data)
            new, known = masked[known:], max(0, known - len(masked))
            if new:
                yield new
        rest = stream.flush()[known:]
        if rest:
            yield rest

    def _log(self, attempt: int) -> LogKey:
        return LogKey(self._request.job.key, self._request.task_index, attempt, self._request.node.rank)


def last_lines(recent: bytes, limit: int = MOST_LAST_LINES_BYTES) -> list[str]:
    """The last lines of a log, fit to be shown: as text, at most `limit` bytes of JSON, also of a line without end."""
    text = recent.decode("utf-8", "replace").replace("\r\n", "\n")
    shown: list[str] = []
    left = limit
    for line in reversed(text.split("\n")):
        cut = _fit(line, left)
        left -= _cost(cut) + 1
        shown.append(cut)
        if left <= 0 or len(cut) < len(line):
            break
    while shown and not shown[0]:
        shown.pop(0)
    return shown[::-1]


def _fit(line: str, limit: int) -> str:
    """The longest end of `line` whose JSON fits; found by halving, since one character costs one to twelve bytes."""
    if _cost(line) <= limit:
        return line
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _cost(line[-middle:]) <= limit else (low, middle - 1)
    return line[-low:] if low else ""


def _cost(line: str) -> int:
    return len(json.dumps(line))
