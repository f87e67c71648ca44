"""`logs`: what a job printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from towline.cli.session import configuration, connect, job_id, run, say
from towline.errors import JobNotFound, UsageError

if TYPE_CHECKING:
    from towline.client import JobClient
    from towline.config import Config
    from towline.following import Selection


@dataclass(frozen=True)
class _Request:
    """What is asked for."""

    job: str
    task: str | None
    follow: bool
    attempt: int | None
    rank: int | None
    tail: int | None
    sync_down: Path | None


@click.command()
@click.argument("job", type=job_id)
@click.argument("task", required=False)
@click.option("--follow/--no-follow", default=True, help="Follow to the job's end (default), or print what there is.")
@click.option("--attempt", type=click.IntRange(min=1), help="One attempt only.")
@click.option("--node", "rank", type=click.IntRange(min=0), metavar="RANK", help="One node only.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option("--sync-down", type=click.Path(path_type=Path, file_okay=False), help="Copy the logs to this directory.")
def logs(
    job: str,
    task: str | None,
    follow: bool,
    attempt: int | None,
    rank: int | None,
    tail: int | None,
    sync_down: Path | None,
) -> int:
    """Show the logs of JOB, or of one TASK of it (its number from 1, or its name)."""
    if sync_down is not None and tail is not None:
        raise UsageError("--sync-down copies whole logs; leave out --tail")
    return run(_logs(configuration(), _Request(job, task, follow, attempt, rank, tail, sync_down)))


async def _logs(config: Config, request: _Request) -> int:
    from towline.cli.follow import follow, show_present
    from towline.following import Selection

    jobs = await connect(config)
    index = await _task_index(jobs, request.job, request.task)
    selection = Selection(index, request.attempt, request.rank)
    if selection != Selection():
        await _check_possible(config, jobs, request.job, selection)
    if request.sync_down is not None:
        return await _sync_down(config, jobs, request.job, selection, request.sync_down)
    if request.follow:
        return await follow(config, jobs, request.job, selection=selection, tail=request.tail)
    return await show_present(config, jobs, request.job, selection, request.tail)


async def _task_index(jobs: JobClient, job: str, task: str | None) -> int | None:
    """A number is the task's; only where no task has it, a task may be called so."""
    if task is None:
        return None
    tasks = (await jobs.status(job))["tasks"]
    for wanted in ("number", "name"):
        for each in tasks:
            if task == (each["name"] if wanted == "name" else str(each["index"] + 1)):
                return int(each["index"])
    names = ", ".join(f"{each['index'] + 1} {each['name']}" for each in tasks)
    raise JobNotFound(f"job {job} has no task {task}; its tasks are: {names or 'not known now'}")


async def _check_possible(config: Config, jobs: JobClient, job: str, selection: Selection) -> None:
    from towline.cli.selecting import impossible
    from towline.directory_log_store import DirectoryLogStore

    document = await jobs.status(job)
    logs = await DirectoryLogStore(config.log_store).logs(await jobs.log_key(job))
    problem = impossible(document, selection, logs)
    if problem:
        raise JobNotFound(f"job {job}: {problem}")


async def _sync_down(config: Config, jobs: JobClient, job: str, selection: Selection, directory: Path) -> int:
    from towline.directory_log_store import DirectoryLogStore
    from towline.following import BLOCK

    store = DirectoryLogStore(config.log_store)
    count = 0
    for log in await store.logs(await jobs.log_key(job)):
        if not selection.takes(log):
            continue
        path = directory / f"task-{log.task_index + 1}" / f"attempt-{log.attempt}" / f"node-{log.rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while data := await store.read(log, file.tell(), BLOCK):
                file.write(data)
        count += 1
    say(f"{count} logs of job {job} are in {directory}")
    return 0
