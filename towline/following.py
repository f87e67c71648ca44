"""A job's logs as one stream: through restarts, recoveries and tasks, each byte once, to the end of the job.

The bytes come from the log store alone, and the words from the job's status, which is looked at beside: a server that
does not answer never holds up a byte.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from towline.changes import attempts_with_exit_code
from towline.errors import LogStoreError
from towline.log_store import LogKey, LogStore
from towline.status import Status
from towline.tail import tail_start
from towline.watching import Jobs, JobWatch, Place

BLOCK = 256 * 1024
LAST_BYTES_LIMIT_S = 10.0
_LOOK_S = 0.2
_GROWTH_LOOK_S = 0.5
_STORE_PAUSE_S = 1.0


@dataclass(frozen=True)
class LogBytes:
    """Bytes of one log, from `offset` on. `several`: logs of other nodes come between."""

    log: LogKey
    offset: int
    data: bytes
    several: bool = False


@dataclass(frozen=True)
class LogEnded:
    """Nothing more of this log will come."""

    log: LogKey


@dataclass(frozen=True)
class Ended:
    """The job is in a final status. Always the last event of a follow to the end."""

    document: dict[str, Any]


@dataclass(frozen=True)
class Notice:
    """Towline's own words, for people."""

    text: str


Event = LogBytes | LogEnded | Notice | Ended


@dataclass(frozen=True)
class Selection:
    """Which logs: all by default."""

    task_index: int | None = None
    attempt: int | None = None
    rank: int | None = None

    def takes(self, log: LogKey) -> bool:
        """Whether `log` is selected."""
        return self.takes_place((log.task_index, log.attempt)) and self.rank in (None, log.rank)

    def takes_place(self, place: Place) -> bool:
        """Whether the attempt is selected."""
        return self.task_index in (None, place[0]) and self.attempt in (None, place[1])


class Follower:
    """Follows one job. Reading only: it can be dropped at any moment and begun anew.

    `tail`: begin with the last so many lines. `limit_s`: how long to wait for bytes that should have come already.
    """

    def __init__(
        self,
        jobs: Jobs,
        store: LogStore,
        job_id: str,
        selection: Selection | None = None,
        *,
        tail: int | None = None,
        limit_s: float = LAST_BYTES_LIMIT_S,
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._job_id = job_id
        self._selection = selection or Selection()
        self._tail = tail
        self._limit_s = limit_s
        self._key = ""
        self._watch = JobWatch(jobs, job_id, self._selection.task_index)
        self._place: Place = (-1, 0)
        self._offsets: dict[LogKey, int] = {}
        self._done: set[LogKey] = set()
        self._seen: set[Place] = set()

    @property
    def document(self) -> dict[str, Any]:
        """The job's status as it was last seen; empty before the first look."""
        return self._watch.document

    async def follow(self) -> AsyncIterator[Event]:
        """Every selected byte in the order of tasks and attempts, with notices between, and `Ended` at last."""
        self._key = await self._jobs.log_key(self._job_id)
        self._watch.begin()
        trouble = ""
        try:
            while True:
                try:
                    async for event in self._walk():
                        yield event
                    break
                except LogStoreError as error:
                    if str(error) != trouble:
                        yield Notice(f"the log store cannot be read: {error}; trying again")
                    trouble = str(error)
                    if self._watch.over_for(self._limit_s):
                        yield Notice("log incomplete: the log store could not be read to the end")
                        break
                    await asyncio.sleep(_STORE_PAUSE_S)
            async for notice in self._last_words():
                yield notice
            yield Ended(self._watch.document)
        finally:
            self._watch.end()

    async def present(self) -> AsyncIterator[Event]:
        """Every selected byte that is there now, without waiting."""
        self._key = await self._jobs.log_key(self._job_id)
        document = await self._jobs.status(self._job_id)  # asked first: what there is after it is all that it tells of
        logs = [log for log in await self._store.logs(self._key) if self._selection.takes(log)]
        self._seen.update(_place(log) for log in logs)
        await self._begin_with_tail(logs)
        for log in logs:
            several = any(each != log and _place(each) == _place(log) for each in logs)
            async for event in self._read_on(log, several):
                yield event
            yield LogEnded(log)
            end = await self._store.end(log)
            if end is not None and not end.complete:
                yield _incomplete(log, end.note)
        missing = self._missing(document)
        for place in missing:
            yield self._nothing_of(place)
        if not logs and not missing:
            ended = Status(document["status"]).final
            yield Notice(self._no_log() if ended else f"job {self._job_id} has printed nothing yet that is asked for")

    async def _walk(self) -> AsyncIterator[Event]:
        """Attempt after attempt, until the job is over and everything that was to come has come."""
        if self._tail is not None:
            await self._begin_with_tail(
                [log for log in await self._store.logs(self._key) if self._selection.takes(log)]
            )
        while True:
            over = self._watch.over  # asked first: what there is after it is all there will be
            place = await self._next_place(everything=over)
            if place is not None:
                async for event in self._through(place):
                    yield event
                self._place = place
                continue
            for text in self._watch.news():
                yield Notice(text)
            if over and (not self._missing(self._watch.document) or self._watch.over_for(self._limit_s)):
                return
            await self._watch.wait_for_news(_LOOK_S)

    async def _begin_with_tail(self, logs: list[LogKey]) -> None:
        if self._tail is None:
            return
        start = await tail_start(self._store, logs, self._tail)
        self._offsets.update(start.offsets)
        self._done.update(start.skipped)
        self._seen.update(_place(log) for log in logs)
        self._tail = None

    async def _next_place(self, *, everything: bool) -> Place | None:
        """The next attempt that has a log. A job may have thousands of tasks, so the usual look is only at the task
        that is being followed and the one after it."""
        near = range(max(self._place[0], 0), self._place[0] + 2)
        for look in near if self._seen else ():
            place = await self._first_place(look)
            if place is not None:
                return place
        if everything or not self._seen or self._watch.current_task >= near.stop:
            return await self._first_place(None)
        return None

    async def _first_place(self, task_index: int | None) -> Place | None:
        if self._selection.task_index is not None:
            task_index = self._selection.task_index
        logs = await self._store.logs(self._key, task_index)
        taken = [log for log in logs if self._selection.takes(log) and log not in self._done]
        return min((_place(log) for log in taken if _place(log) > self._place), default=None)

    async def _through(self, place: Place) -> AsyncIterator[Event]:
        """All logs of one attempt, side by side, to their end."""
        self._seen.add(place)
        self._watch.look_now()
        overdue_since: float | None = None
        while True:
            logs = [log for log in await self._store.logs(self._key, place[0]) if self._in(place, log)]
            before = self._read_of(logs)
            async for event in self._round(place, logs):
                yield event
            unfinished = [log for log in logs if log not in self._done]
            if not unfinished and (len(logs) >= self._nodes(place) or overdue_since is not None):
                break
            if self._read_of(logs) > before:
                overdue_since = None
                continue
            if overdue_since is None and await self._is_past(place):
                overdue_since = time.monotonic()
            if overdue_since is not None and time.monotonic() - overdue_since > self._limit_s:
                for event in self._give_up(unfinished):
                    yield event
                break
            await self._wait_for_growth(unfinished)
        self._watch.look_now()

    async def _round(self, place: Place, logs: list[LogKey]) -> AsyncIterator[Event]:
        """What is new in the logs of an attempt, and then the words that are due."""
        several = self._selection.rank is None and (len(logs) > 1 or self._nodes(place) > 1)
        for log in logs:
            async for event in self._read_on(log, several):
                yield event
            async for event in self._end_of(log, several):
                yield event
        for text in self._watch.news(holding=place):
            yield Notice(text)

    def _in(self, place: Place, log: LogKey) -> bool:
        return _place(log) == place and self._selection.takes(log)

    def _read_of(self, logs: list[LogKey]) -> int:
        return sum(self._offsets.get(log, 0) for log in logs)

    def _nodes(self, place: Place) -> int:
        """How many logs of the attempt are to come."""
        return 1 if self._selection.rank is not None else self._watch.nodes(place[0])

    async def _is_past(self, place: Place) -> bool:
        """Whether the attempt must have ended, since the job has, or something after it has begun."""
        if self._watch.over:
            return True
        near = [*await self._store.logs(self._key, place[0]), *await self._store.logs(self._key, place[0] + 1)]
        return any(_place(log) > place for log in near)

    def _give_up(self, logs: list[LogKey]) -> list[Event]:
        self._done.update(logs)
        events: list[Event] = []
        for log in logs:
            events += [LogEnded(log), _incomplete(log, "its end was never written; the workers' log says why")]
        return events

    async def _wait_for_growth(self, logs: list[LogKey]) -> None:
        """Until there is more, half a second at most, since there may be news of the job too."""
        if len(logs) == 1 and await self._store.end(logs[0]) is None:
            await self._store.wait_for_growth(logs[0], self._offsets.get(logs[0], 0), _GROWTH_LOOK_S)
            return
        await asyncio.sleep(_LOOK_S)  # several at once, or one whose end is known but whose bytes are not here yet

    async def _read_on(self, log: LogKey, several: bool) -> AsyncIterator[Event]:
        if log in self._done:
            return
        while True:
            offset = self._offsets.get(log, 0)
            data = await self._store.read(log, offset, BLOCK)
            if not data:
                return
            self._offsets[log] = offset + len(data)
            yield LogBytes(log, offset, data, several)

    async def _end_of(self, log: LogKey, several: bool) -> AsyncIterator[Event]:
        """Its end, once it is written and everything before it is read."""
        if log in self._done:
            return
        end = await self._store.end(log)
        if end is None:
            return
        async for event in self._read_on(log, several):  # what came before the end was written, but after the last look
            yield event
        if self._offsets.get(log, 0) < end.size:
            return
        self._done.add(log)
        yield LogEnded(log)
        if not end.complete:
            yield _incomplete(log, end.note)

    def _missing(self, document: dict[str, Any]) -> list[Place]:
        """Attempts that ended on their node and of which the log store has nothing, not even an end."""
        ended = attempts_with_exit_code(document)
        return sorted(place for place in ended - self._seen if self._selection.takes_place(place))

    async def _last_words(self) -> AsyncIterator[Notice]:
        await self._watch.settle(self._limit_s)
        for text in self._watch.news():
            yield Notice(text)
        missing = self._missing(self._watch.document)
        for place in missing:
            yield self._nothing_of(place)
        if not self._seen and not missing and self._selection != Selection():
            yield Notice(self._no_log())

    def _nothing_of(self, place: Place) -> Notice:
        where = getattr(self._store, "root", "the log store")
        what = f"{where} has nothing of task {place[0] + 1}, attempt {place[1]}"
        return Notice(f"log incomplete: {what}; TOWLINE_LOG_STORE must be the one that the workers use")

    def _no_log(self) -> str:
        what = " of what is asked for" if self._selection != Selection() else ""
        return f"job {self._job_id} has no log{what}"


def _place(log: LogKey) -> Place:
    return log.task_index, log.attempt


def _incomplete(log: LogKey, why: str) -> Notice:
    return Notice(f"log incomplete: task {log.task_index + 1}, attempt {log.attempt}, node {log.rank}: {why}")
