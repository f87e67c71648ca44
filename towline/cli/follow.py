"""Showing a follow: the task's bytes on standard output untouched, Towline's own words on standard error."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from towline.cli.session import print_json, say
from towline.config import Config
from towline.directory_log_store import DirectoryLogStore
from towline.following import Ended, Event, Follower, LogBytes, Notice, Selection
from towline.status import ExitCode, Status, exit_code

if TYPE_CHECKING:
    from towline.client import JobClient


async def follow(
    config: Config,
    jobs: JobClient,
    job_id: str,
    *,
    selection: Selection | None = None,
    tail: int | None = None,
    as_json: bool = False,
) -> int:
    """Follow to the job's end and return its exit code; Ctrl-C leaves the job alone and returns NOT_FINISHED."""
    follower = Follower(jobs, DirectoryLogStore(config.log_store), job_id, selection)
    work = asyncio.create_task(_show(follower.follow(), tail=tail, to_stderr=as_json))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, work.cancel)
    try:
        document = await work
    except asyncio.CancelledError:
        say(f"\nleft job {job_id}, which goes on; towline logs {job_id} comes back, towline cancel {job_id} ends it")
        return ExitCode.NOT_FINISHED
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    document = document or await jobs.status(job_id)
    if as_json:
        print_json(document)
    else:
        _conclude(document)
    return exit_code(Status(document["status"]))


async def show_present(config: Config, jobs: JobClient, job_id: str, selection: Selection, tail: int | None) -> int:
    """Print what there is, and return the job's exit code as it stands."""
    follower = Follower(jobs, DirectoryLogStore(config.log_store), job_id, selection)
    await _show(follower.present(), tail=tail)
    return exit_code(Status((await jobs.status(job_id))["status"]))


async def _show(events: AsyncIterator[Event], *, tail: int | None = None, to_stderr: bool = False) -> dict[str, Any]:
    output = _Output(sys.stderr if to_stderr else sys.stdout)
    skipped = deque[bytes](maxlen=max(tail, 1)) if tail is not None else None
    del skipped
    document: dict[str, Any] = {}
    async for event in events:
        if isinstance(event, LogBytes):
            output.write(event)
        elif isinstance(event, Notice):
            say(f"towline: {event.text}")
        elif isinstance(event, Ended):
            document = event.document
    return document


class _Output:
    """Bytes as they come; where there are several nodes, whole lines with the node in front."""

    def __init__(self, stream: Any) -> None:
        self._descriptor = stream.fileno()

    def write(self, event: LogBytes) -> None:
        data = memoryview(event.data)
        while data:
            data = data[os.write(self._descriptor, data) :]


def _conclude(document: dict[str, Any]) -> None:
    for task in document["tasks"]:
        counts = f"restarts {task['restarts']}/{task['max_restarts_on_errors']}, recoveries {task['recoveries']}"
        reason = f": {task['reason']}" if task["reason"] else ""
        say(f"task {task['index'] + 1}/{len(document['tasks'])} {task['name']} {task['status']} ({counts}){reason}")
    reason = f": {document['reason']}" if document["reason"] else ""
    say(f"job {document['job_id']} {document['status']}{reason}")
    if document.get("web_ui_url"):
        say(f"see it at {document['web_ui_url']}")
