"""A job's logs as one stream: through restarts, recoveries and tasks, each byte once, to the end of the job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from towline.errors import LogStoreError, ServerUnreachable
from towline.log_store import LogKey, LogStore
from towline.status import Status

BLOCK = 256 * 1024
_LOOK_S = 0.1
_STATUS_EVERY_S = 1.0
_LAST_BYTES_LIMIT_S = 10.0


class Jobs(Protocol):
    """What following needs to know of jobs; `towline.client.JobClient` is one."""

    async def status(self, job_id: str) -> dict[str, Any]: ...

    async def wait(self, job_id: str) -> Status: ...

    async def log_key(self, job_id: str) -> str: ...


@dataclass(frozen=True)
class LogBytes:
    """Bytes of one log, from `offset` on."""

    log: LogKey
    offset: int
    data: bytes


@dataclass(frozen=True)
class Notice:
    """Towline's own words, for people."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The job is in a final status. Always the last event of a follow to the end."""

    document: dict[str, Any]


Event = LogBytes | Notice | Ended


@dataclass(frozen=True)
class Selection:
    """Which logs: all by default."""

    task_index: int | None = None
    attempt: int | None = None
    rank: int | None = None

    def takes(self, log: LogKey) -> bool:
        """Whether `log` is selected."""
        return (
            self.task_index in (None, log.task_index)
            and self.attempt in (None, log.attempt)
            and self.rank in (None, log.rank)
        )


class Follower:
    """Follows one job. Reading only: it can be dropped at any moment and begun anew."""

    def __init__(self, jobs: Jobs, store: LogStore, job_id: str, selection: Selection | None = None) -> None:
        self._jobs = jobs
        self._store = store
        self._job_id = job_id
        self._selection = selection or Selection()
        self._offsets: dict[LogKey, int] = {}
        self._done: set[LogKey] = set()
        self._said: set[str] = set()
        self._document: dict[str, Any] = {}
        self._looked = 0.0

    async def follow(self) -> AsyncIterator[Event]:
        """Every selected byte in the order of tasks and attempts, with notices between, and `Ended` at last."""
        key = await self._jobs.log_key(self._job_id)
        ending = asyncio.create_task(self._jobs.wait(self._job_id))
        try:
            while not ending.done():
                async for event in self._round(key, ended=False):
                    yield event
            await ending
            async for event in self._rest(key):
                yield event
        finally:
            ending.cancel()

    async def present(self) -> AsyncIterator[Event]:
        """Every selected byte that is there now, without waiting."""
        key = await self._jobs.log_key(self._job_id)
        for log in await self._selected(key):
            async for event in self._read_on(log):
                yield event

    async def _round(self, key: str, *, ended: bool) -> AsyncIterator[Event]:
        """What is new: words on what has changed, then bytes; and a wait for more."""
        for notice in await self._notices():
            yield notice
        current = None
        for log in await self._selected(key):
            if log in self._done:
                continue
            current = log
            async for event in self._read_on(log):
                yield event
            if not await self._has_ended(log, key):
                break  # one log at a time: what comes after it waits
            self._done.add(log)
            for notice in await self._incomplete(log):
                yield notice
        if ended:
            return
        if current is None or current in self._done:
            await asyncio.sleep(_LOOK_S)
        else:
            await self._store.wait_for_growth(current, self._offsets.get(current, 0), _STATUS_EVERY_S)

    async def _rest(self, key: str) -> AsyncIterator[Event]:
        """The job has ended: what the log store still gets, for a bounded time."""
        limit = time.monotonic() + _LAST_BYTES_LIMIT_S
        while True:
            self._looked = 0.0
            async for event in self._round(key, ended=True):
                yield event
            open_logs = [log for log in await self._selected(key) if log not in self._done]
            if not open_logs:
                break
            if time.monotonic() > limit:
                for log in open_logs:
                    for notice in await self._incomplete(log):
                        yield notice
                break
            await asyncio.sleep(_LOOK_S)
        yield Ended(self._document)

    async def _selected(self, key: str) -> list[LogKey]:
        try:
            logs = await self._store.logs(key, self._selection.task_index)
        except LogStoreError:
            return []
        return [log for log in logs if self._selection.takes(log)]

    async def _read_on(self, log: LogKey) -> AsyncIterator[LogBytes]:
        while True:
            offset = self._offsets.get(log, 0)
            data = await self._store.read(log, offset, BLOCK)
            if not data:
                return
            self._offsets[log] = offset + len(data)
            yield LogBytes(log, offset, data)

    async def _has_ended(self, log: LogKey, key: str) -> bool:
        """Its end is written and read to; or a later attempt or task has begun, so nothing more can come."""
        end = await self._store.end(log)
        if end is not None and self._offsets.get(log, 0) >= end.size:
            return True
        later = [each for each in await self._store.logs(key) if each.rank == log.rank and each > log]
        return end is None and bool(later) and await self._store.size(log) <= self._offsets.get(log, 0)

    async def _incomplete(self, log: LogKey) -> list[Notice]:
        end = await self._store.end(log)
        if end is None:
            return [Notice(f"the log of {_name(log)} may be incomplete: its end was never written")]
        return [] if end.complete else [Notice(f"the log of {_name(log)} is incomplete: {end.note}")]

    async def _notices(self) -> list[Notice]:
        """What changed in the job since it was last looked at."""
        now = time.monotonic()
        if now - self._looked < _STATUS_EVERY_S:
            return []
        self._looked = now
        try:
            document = await self._jobs.status(self._job_id)
        except ServerUnreachable as error:
            return self._once(f"{error}; waiting for it")
        texts = changes(self._document, document)
        self._document = document
        return [Notice(text) for text in texts]

    def _once(self, text: str) -> list[Notice]:
        if text in self._said:
            return []
        self._said.add(text)
        return [Notice(text)]


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What to tell a person who saw `before` and now sees `after`; both are status documents, `before` may be empty."""
    texts: list[str] = []
    earlier = {task["index"]: task for task in before.get("tasks", [])}
    total = len(after.get("tasks", []))
    for task in after.get("tasks", []):
        texts += _task_changes(earlier.get(task["index"], {}), task, total)
    if not after.get("tasks") and after.get("reason") and after["reason"] != before.get("reason"):
        texts.append(after["reason"])
    return texts


def _task_changes(before: dict[str, Any], after: dict[str, Any], total: int) -> list[str]:
    name = f"task {after['index'] + 1}/{total} {after['name']}"
    known = {each["attempt"] for each in before.get("attempts", []) if each["ended_at"]}
    ended = [each for each in after["attempts"] if each["ended_at"] and each["attempt"] not in known]
    texts = [f"{name}: attempt {each['attempt']} {each['status']}: {each['reason']}" for each in ended]
    status = after["status"]
    if status != before.get("status", Status.PENDING) or after["reason"] != before.get("reason", ""):
        changed = status != before.get("status", Status.PENDING)
        if changed or (after["reason"] and not Status(status).final):
            texts.append(f"{name}: {status}" + (f" ({after['reason']})" if after["reason"] else ""))
    return texts


def _name(log: LogKey) -> str:
    return f"task {log.task_index + 1}, attempt {log.attempt}, node {log.rank}"
