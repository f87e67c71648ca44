"""Heartbeats that go on while an activity works, and letting go when its worker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import activity

_BEATS_PER_TIMEOUT = 3
_DEFAULT_TIMEOUT = timedelta(seconds=30)

_Result = TypeVar("_Result")


class WorkerStopping(Exception):
    """This worker stops; the work goes on elsewhere."""


@asynccontextmanager
async def beating(details: Callable[[], Any]) -> AsyncIterator[Callable[[], None]]:
    """Heartbeat `details()` at once, at least three times per heartbeat timeout, and whenever the yielded function is
    called (the SDK throttles these). The last one is sent on the way out, so that a failure carries it."""

    def beat() -> None:
        activity.heartbeat(details())

    beat()
    task = asyncio.create_task(_beat_regularly(beat))
    try:
        yield beat
    finally:
        task.cancel()
        beat()


async def _beat_regularly(beat: Callable[[], None]) -> None:
    timeout = activity.info().heartbeat_timeout or _DEFAULT_TIMEOUT
    while True:
        await asyncio.sleep(timeout.total_seconds() / _BEATS_PER_TIMEOUT)
        beat()


async def until_worker_stops(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`; WorkerStopping as soon as this worker begins to shut down, with `work` let go."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise WorkerStopping
    finally:
        stopping.cancel()
        await _let_go(task)


async def _let_go(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
