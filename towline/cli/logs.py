"""`logs`: what a job printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from towline.cli.session import connect, run, say
from towline.config import Config
from towline.errors import JobNotFound

if TYPE_CHECKING:
    from towline.client import JobClient


@click.command()
@click.argument("job")
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
    """Show the logs of JOB, or of one TASK of it (its name, or its number from 1)."""
    return run(_logs(Config.from_environment(), job, task, follow, attempt, rank, tail, sync_down))


async def _logs(
    config: Config,
    job: str,
    task: str | None,
    follow: bool,
    attempt: int | None,
    rank: int | None,
    tail: int | None,
    sync_down: Path | None,
) -> int:
    from towline.cli import follow as following
    from towline.following import Selection

    jobs = await connect(config)
    index = await _task_index(jobs, job, task)
    selection = Selection(index, attempt, rank)
    if sync_down is not None:
        return await _sync_down(config, jobs, job, selection, sync_down)
    if follow:
        return await following.follow(config, jobs, job, selection=selection, tail=tail)
    return await following.show_present(config, jobs, job, selection, tail)


async def _task_index(jobs: JobClient, job: str, task: str | None) -> int | None:
    document = await jobs.status(job)
    if task is None:
        return None
    for each in document["tasks"]:
        if task in (each["name"], str(each["index"] + 1)):
            return int(each["index"])
    names = ", ".join(f"{each['index'] + 1} {each['name']}" for each in document["tasks"])
    raise JobNotFound(f"job {job} has no task {task}; its tasks are: {names or 'not known now'}")


async def _sync_down(config: Config, jobs: JobClient, job: str, selection: object, directory: Path) -> int:
    from towline.directory_log_store import DirectoryLogStore
    from towline.following import BLOCK, Selection

    assert isinstance(selection, Selection)
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
