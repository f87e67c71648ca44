"""`queue`, `status` and `cancel`."""

from __future__ import annotations

import click

from towline.cli.session import connect, print_json, run, say
from towline.config import Config
from towline.errors import UsageError
from towline.status import Status


@click.command()
@click.option("--status", "statuses", multiple=True, metavar="STATUS", help="Only these; may be given several times.")
@click.option("--limit", type=click.IntRange(1, 10000), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def queue(statuses: tuple[str, ...], limit: int, as_json: bool) -> int:
    """List the jobs, newest first."""
    wanted = [each.strip().upper() for text in statuses for each in text.split(",")]
    unknown = [each for each in wanted if each not in Status.__members__]
    if unknown:
        raise UsageError(f"--status {unknown[0]}: is no status; they are {', '.join(Status.__members__)}")
    rows = run(_queue(wanted, limit))
    if as_json:
        print_json(rows)
    else:
        from towline.cli.render import queue_table

        queue_table(rows)
    return 0


async def _queue(statuses: list[str], limit: int) -> list[dict[str, object]]:
    jobs = await connect(Config.from_environment())
    return await jobs.queue(status=statuses or None, limit=limit)


@click.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def status(job: str, as_json: bool) -> int:
    """Show one job: tasks, attempts, nodes, reasons."""
    document = run(_status(job))
    if as_json:
        print_json(document)
    else:
        from towline.cli.render import status_view

        status_view(document)
    return 0


async def _status(job: str) -> dict[str, object]:
    jobs = await connect(Config.from_environment())
    return await jobs.status(job)


@click.command()
@click.argument("job_ids", nargs=-1, metavar="JOB...")
@click.option("--all", "every", is_flag=True, help="Every job that runs.")
@click.option("--wait", is_flag=True, help="Return when the jobs have ended.")
def cancel(job_ids: tuple[str, ...], every: bool, wait: bool) -> int:
    """Stop jobs, everywhere, and give their nodes back."""
    if bool(job_ids) == every:
        raise UsageError("name the jobs to cancel, or say --all")
    return run(_cancel(job_ids, every, wait))


async def _cancel(job_ids: tuple[str, ...], every: bool, wait: bool) -> int:
    jobs = await connect(Config.from_environment())
    wanted = await jobs.running() if every else list(dict.fromkeys(job_ids))
    if not wanted:
        say("no job runs")
    asked = []
    for job_id in wanted:
        state = await jobs.cancel(job_id)
        if state == Status.CANCELLING:
            say(f"{job_id}: cancel accepted")
            asked.append(job_id)
        else:
            say(f"{job_id}: has already ended {state}")
    if wait:
        for job_id in asked:
            say(f"{job_id}: waiting until everything of it is gone")
            final = await jobs.wait(job_id)
            say(f"{job_id}: {final}")
    return 0
