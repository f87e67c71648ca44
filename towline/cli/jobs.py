"""`queue`, `status` and `cancel`."""

from __future__ import annotations

import click

from towline.cli.session import configuration, connect, job_id, print_json, run, say, waiting
from towline.errors import JobNotFound, UsageError
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
    jobs = await connect(configuration())
    return await jobs.queue(status=statuses or None, limit=limit)


@click.command()
@click.argument("job", type=job_id)
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
    jobs = await connect(configuration())
    return await jobs.status(job)


@click.command()
@click.argument("job_ids", nargs=-1, metavar="JOB...", type=job_id)
@click.option("--all", "every", is_flag=True, help="Every job that runs.")
@click.option("--wait", is_flag=True, help="Return when the jobs have ended.")
def cancel(job_ids: tuple[str, ...], every: bool, wait: bool) -> int:
    """Stop jobs, everywhere, and give their nodes back."""
    if bool(job_ids) == every:
        raise UsageError("name the jobs to cancel, or say --all")
    return run(_cancel(job_ids, every, wait))


async def _cancel(job_ids: tuple[str, ...], every: bool, wait: bool) -> int:
    jobs = await connect(configuration())
    wanted = await jobs.running() if every else list(dict.fromkeys(job_ids))
    if not wanted:
        say("no job runs")
    asked = []
    missing = []
    for job in wanted:
        try:
            state = await jobs.cancel(job)
        except JobNotFound as error:  # the others are cancelled all the same
            missing.append(str(error))
            continue
        if state == Status.CANCELLING:
            say(f"{job}: cancel accepted")
            asked.append(job)
        else:
            say(f"{job}: has already ended {state}")
    for job in asked if wait else []:
        with waiting(f"{job}: waiting until everything of it is gone"):
            final = await jobs.wait(job)
        say(f"{job}: {final}")
    if missing:
        raise JobNotFound("\n".join(missing))
    return 0
