"""Work that a cancel must not cut in two."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def to_its_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`. A cancel waits until `work` has ended, and is passed on then: for a thread that cannot be
    stopped, or a request on its way to another machine, which would be carried out though nobody waits for it."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
