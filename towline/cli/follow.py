"""Showing a follow: the task's bytes on standard output untouched, Towline's own words on standard error."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from towline.changes import standing
from towline.cli.output import Output
from towline.cli.session import Waiting, command_line, print_json, say
from towline.config import Config
from towline.directory_log_store import DirectoryLogStore
from towline.following import Ended, Event, Follower, LogBytes, LogEnded, Notice, Selection
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
    follower = Follower(jobs, DirectoryLogStore(config.log_store), job_id, selection, tail=tail)
    output = Output(sys.stderr if as_json else sys.stdout)
    work = asyncio.create_task(_show(follower, follower.follow(), output))
    try:
        with _interrupting(work, output):
            document = await work
    except asyncio.CancelledError:
        _say_left(job_id)
        document = follower.document or {"job_id": job_id, "status": None}
        if as_json:
            print_json(document)
        return ExitCode.NOT_FINISHED
    if as_json:
        print_json(document)
    else:
        _conclude(document, selection.task_index if selection else None)
    return exit_code(Status(document["status"]))


async def show_present(config: Config, jobs: JobClient, job_id: str, selection: Selection, tail: int | None) -> int:
    """Print what there is, and return the job's exit code as it stands."""
    follower = Follower(jobs, DirectoryLogStore(config.log_store), job_id, selection, tail=tail)
    await _show(follower, follower.present(), Output(sys.stdout))
    return exit_code(Status((await jobs.status(job_id))["status"]))


async def _show(follower: Follower, events: AsyncIterator[Event], output: Output) -> dict[str, Any]:
    document: dict[str, Any] = {}
    waiting = Waiting()
    try:
        async for event in events:
            waiting.hide()
            if isinstance(event, LogBytes):
                output.write(event.log.rank, event.data, several=event.several)
            elif isinstance(event, LogEnded):
                output.end(event.log.rank)
            elif isinstance(event, Notice):
                output.break_line()
                say(f"towline: {event.text}")
                if not Status(follower.document.get("status") or Status.PENDING).final:
                    waiting.show(standing(follower.document))
            elif isinstance(event, Ended):
                document = event.document
    finally:
        waiting.hide()
        output.break_line()
    return document


@contextlib.contextmanager
def _interrupting(work: asyncio.Task[Any], output: Output) -> Iterator[None]:
    """Ctrl-C cancels `work`, also when it hangs in a write because the pager at the other end of the pipe waits."""
    loop = asyncio.get_running_loop()

    def interrupted(*_: object) -> None:
        if output.writing:
            raise asyncio.CancelledError
        loop.call_soon_threadsafe(work.cancel)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say_left(job_id: str) -> None:
    back, end = command_line("logs", job_id), command_line("cancel", job_id)
    say(f"\nleft job {job_id}, which goes on; `{back}` comes back, `{end}` ends it")


def _conclude(document: dict[str, Any], only: int | None) -> None:
    for task in document["tasks"]:
        if only not in (None, task["index"]):
            continue
        counts = f"restarts {task['restarts']}/{task['max_restarts_on_errors']}, recoveries {task['recoveries']}"
        reason = f": {task['reason']}" if task["reason"] else ""
        say(f"task {task['index'] + 1}/{len(document['tasks'])} {task['name']} {task['status']} ({counts}){reason}")
    reason = f": {document['reason']}" if document["reason"] else ""
    say(f"job {document['job_id']} {document['status']}{reason}")
    if document.get("web_ui_url"):
        say(f"see it at {document['web_ui_url']}")
