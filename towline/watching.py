"""A job's status, looked at beside its logs: what is news for a person, and when the job is over."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from towline.changes import attempts_ended, changes
from towline.errors import ServerUnreachable
from towline.status import Status

_BURST_S = 0.2
_STATUS_EVERY_S = 1.0

Place = tuple[int, int]
"""Task index and attempt: the order of the stream."""


class Jobs(Protocol):
    """What following needs to know of jobs; `towline.client.JobClient` is one."""

    async def status(self, job_id: str) -> dict[str, Any]: ...

    async def wait(self, job_id: str) -> Status: ...

    async def log_key(self, job_id: str) -> str: ...


class JobWatch:
    """The job's status, looked at beside the logs. `only`: index of the one task whose changes are news."""

    def __init__(self, jobs: Jobs, job_id: str, only: int | None = None) -> None:
        self._jobs = jobs
        self._only = only
        self._job_id = job_id
        self.document: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._arrived = 0.0
        self._words: list[str] = []
        self._unreachable = False
        self._over_since: float | None = None
        self._look = asyncio.Event()
        self._news = asyncio.Event()
        self._ending: asyncio.Task[Status] | None = None
        self._looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start looking."""
        self._ending = asyncio.create_task(self._jobs.wait(self._job_id))
        self._ending.add_done_callback(lambda _: self._news.set())
        self._looking = asyncio.create_task(self._look_for_ever())

    def end(self) -> None:
        """Stop looking."""
        for task in (self._ending, self._looking):
            if task is not None:
                task.cancel()

    @property
    def current_task(self) -> int:
        """Index of the task that the job is at, as far as is known."""
        tasks = self.document.get("tasks", [])
        begun = [task["index"] for task in tasks if task["status"] != Status.PENDING and task["attempts"]]
        return max(begun, default=0)

    def nodes(self, task_index: int) -> int:
        """How many nodes the task has, as far as is known; at least one."""
        tasks = {task["index"]: task for task in self.document.get("tasks", [])}
        return max(1, len({node["rank"] for node in tasks.get(task_index, {}).get("nodes", [])}))

    @property
    def over(self) -> bool:
        """Whether the job has ended. Raises what kept us from ever knowing, such as JobNotFound."""
        for task in (self._ending, self._looking):
            if task is not None and task.done():
                task.result()
        ended = self._ending is not None and self._ending.done()
        if ended and self._over_since is None:
            self._over_since = time.monotonic()
            self.look_now()
        return ended

    def over_for(self, seconds: float) -> bool:
        """Whether the job ended so long ago."""
        return self.over and self._over_since is not None and time.monotonic() - self._over_since > seconds

    def look_now(self) -> None:
        """Something happened that the status will have words for."""
        self._look.set()

    async def wait_for_news(self, timeout: float) -> None:
        """Until there is news, or the time is up."""
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except TimeoutError:
            return

    def news(self, *, holding: Place | None = None) -> list[str]:
        """What is new in the job. While the log of the attempt `holding` is still being read, its end is not news
        for a second, so that the last lines come before the words on them."""
        words, self._words = self._words, []
        fresh = time.monotonic() - self._arrived < _STATUS_EVERY_S
        if holding is None or not fresh or holding not in attempts_ended(self.document):
            words += changes(self._told, self.document, self._only)
            self._told = self.document
        return words

    async def settle(self, timeout: float) -> None:
        """The job has ended: get a document that says so; say it ourselves where the server does not in time."""
        assert self._ending is not None
        final = self._ending.result()
        try:
            async with asyncio.timeout(timeout):
                while not self.document.get("ended_at"):  # its status may be final while its nodes are given back
                    self.look_now()
                    await self.wait_for_news(_BURST_S)
        except TimeoutError:
            self.document = {**_unknown(self._job_id), **self.document, "status": str(final)}

    async def _look_for_ever(self) -> None:
        while True:
            self._look.clear()
            try:
                self._take(await self._jobs.status(self._job_id))
            except ServerUnreachable as error:
                self._lost(error)
            await asyncio.sleep(_BURST_S)  # a burst of events is one look
            try:
                await asyncio.wait_for(self._look.wait(), _STATUS_EVERY_S - _BURST_S)
            except TimeoutError:
                continue

    def _take(self, document: dict[str, Any]) -> None:
        if self._unreachable:
            self._unreachable = False
            self._words.append("the Temporal server answers again")
        if document != self.document:
            if attempts_ended(document) != attempts_ended(self.document):
                self._arrived = time.monotonic()
            self.document = document
        self._news.set()

    def _lost(self, error: ServerUnreachable) -> None:
        if not self._unreachable:
            self._unreachable = True
            self._words.append(f"{error}; waiting for it, the job goes on")
            self._news.set()


def _unknown(job_id: str) -> dict[str, Any]:
    times = {"submitted_at": None, "ended_at": None, "web_ui_url": None}
    return {"job_id": job_id, "name": "", "status": "", "reason": "", **times, "tasks": []}
