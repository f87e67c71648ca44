"""What people see of jobs, nodes and providers, on standard output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from towline.cli.session import command_line, plain
from towline.cli.table import Column, Screen, print_table
from towline.hiding import HIDDEN
from towline.status import Status

if TYPE_CHECKING:
    from towline.providers.protocol import ProviderCheck
    from towline.spec import JobSpec

_COLOURS = {
    Status.SUCCEEDED: "green",
    Status.RUNNING: "cyan",
    Status.STARTING: "blue",
    Status.RECOVERING: "yellow",
    Status.CANCELLING: "yellow",
    Status.CANCELLED: "yellow",
    Status.PENDING: "dim",
}


def queue_table(rows: list[dict[str, Any]]) -> None:
    """The queue."""
    if not rows:
        Screen().print("no jobs; `towline launch FILE` submits one")
        return
    columns = [
        Column("ID", [row["job_id"] for row in rows]),
        Column("NAME", [row["name"] for row in rows], least=10, expendable=6),
        Column("STATUS", [row["status"] for row in rows]),
        Column("TASK", [_task(row) for row in rows], least=10, expendable=2),
        Column("RESTARTS", [str(row["restarts"]) for row in rows], expendable=4),
        Column("RECOVERIES", [str(row["recoveries"]) for row in rows], expendable=5),
        Column("SUBMITTED", [_ago(row["submitted_at"]) for row in rows], expendable=3),
        Column("DURATION", [_duration(row["duration_s"]) for row in rows], expendable=3),
        Column("REASON", [row["reason"] for row in rows], least=12, expendable=1),
    ]
    print_table(columns, _styled)


def status_view(document: dict[str, Any]) -> None:
    """One job whole."""
    screen = Screen()
    screen.print(Text.assemble(f"{plain(document['job_id'])}  ", _status(document["status"])))
    if document["reason"]:
        for line in document["reason"].splitlines():  # of a job that was refused, one per problem
            screen.print(Text(plain(line)))
    submitted = f"submitted {_ago(document['submitted_at'])}"
    if document.get("ended_at"):
        submitted += f", ended {_ago(document['ended_at'])}"
    screen.print(Text(submitted))
    for task in document["tasks"]:
        _task_view(screen, task, len(document["tasks"]))
    if document.get("web_ui_url"):
        screen.print(Text(f"\nWeb UI: {document['web_ui_url']}", overflow="fold"))
    screen.print(Text(plain(_next_step(document))))


def _next_step(document: dict[str, Any]) -> str:
    follow = command_line("logs", document["job_id"])
    if Status(document["status"]).final:
        return f"`{follow}` shows what it printed"
    return f"`{follow}` follows it, `{command_line('cancel', document['job_id'])}` ends it"


def _task_view(screen: Screen, task: dict[str, Any], total: int) -> None:
    counts = f"  restarts {task['restarts']}/{task['max_restarts_on_errors']}, recoveries {task['recoveries']}"
    title = f"\ntask {task['index'] + 1}/{total} {plain(task['name'])}  "
    screen.print(Text.assemble(title, _status(task["status"]), counts))
    if task["reason"]:
        screen.print(Text("  " + plain(task["reason"])))
    attempts, nodes = task["attempts"], task["nodes"]
    if attempts:
        columns = [
            Column("ATTEMPT", [str(each["attempt"]) for each in attempts]),
            Column("STATUS", [each["status"] for each in attempts]),
            Column("EXIT CODE", ["" if each["exit_code"] is None else str(each["exit_code"]) for each in attempts]),
            Column("CAUSE", [each["cause"] or "" for each in attempts], expendable=2),
            Column("STARTED", [_ago(each["started_at"]) for each in attempts], expendable=4),
            Column("DURATION", [_between(each["started_at"], each["ended_at"]) for each in attempts], expendable=3),
            Column("REASON", [each["reason"] for each in attempts], least=12, expendable=1),
        ]
        print_table(columns, _styled)
    for key, value in task.get("outputs", {}).items():
        screen.print(Text(plain(f"  output {key}={value}"), overflow="fold"))
    if nodes:
        columns = [
            Column("NODE", [each["node_id"] for each in nodes]),
            Column("RANK", [str(each["rank"]) for each in nodes], expendable=2),
            Column("STATE", [each["state"] for each in nodes]),
            Column("ADDRESS", [f"{each['host']}:{each['port']}" for each in nodes], expendable=1),
            Column("REGION", [each.get("region") or "" for each in nodes], expendable=4),
            Column("INSTANCE TYPE", [each.get("instance_type") or "" for each in nodes], expendable=3),
        ]
        print_table(columns, _styled)


def node_table(rows: list[dict[str, Any]]) -> None:
    """The nodes held."""
    if not rows:
        Screen().print("no nodes are held")
        return
    columns = [
        Column("NODE", [row["node_id"] for row in rows]),
        Column("STATE", [row["state"] for row in rows], expendable=2),
        Column("JOB", [row["job_id"] for row in rows], least=12),
        Column("TASK", [str(row["task_index"] + 1) for row in rows], expendable=3),
        Column("RANK", [str(row["rank"]) for row in rows], expendable=5),
        Column("ADDRESS", [f"{row['host']}:{row['port']}" for row in rows], expendable=4),
    ]
    print_table(columns, _styled)


def check_table(rows: list[ProviderCheck]) -> None:
    """What each provider says of itself."""
    columns = [
        Column("PROVIDER", [row.provider for row in rows]),
        Column("USABLE", ["yes" if row.usable else "no" for row in rows]),
        Column("DETAIL", [row.detail for row in rows], least=10, wraps=True),
        Column("REMEDY", [row.remedy for row in rows], least=10, wraps=True),
    ]
    print_table(columns)


def plan(job: JobSpec) -> None:
    """What a job would do."""
    tasks = job.tasks
    recoveries = [task.resources.job_recovery for task in tasks]
    columns = [
        Column("TASK", [f"{index + 1}/{len(tasks)} {task.name}" for index, task in enumerate(tasks)], least=12),
        Column("INFRA", [task.resources.infra or task.resources.cloud or "local" for task in tasks]),
        Column("CPUS", [task.resources.cpus or "" for task in tasks], expendable=2),
        Column("MEMORY", [task.resources.memory or "" for task in tasks], expendable=3),
        Column("RESTARTS", [str(recovery.max_restarts_on_errors) for recovery in recoveries], expendable=1),
        Column("STRATEGY", [recovery.strategy for recovery in recoveries], expendable=4),
    ]
    Screen().print(Text(f"job {plain(job.name)}: {len(tasks)} task{'' if len(tasks) == 1 else 's'}"))
    print_table(columns)
    for index, task in enumerate(tasks):
        if task.secrets:
            shown = " ".join(f"{name}={HIDDEN}" for name in task.secrets)
            Screen().print(Text(f"secrets of task {index + 1}/{len(tasks)} {plain(task.name)}: {plain(shown)}"))


def _styled(column: str, cell: str) -> Text:
    return _status(cell) if column == "STATUS" else Text(cell)


def _status(status: str) -> Text:
    known = Status(status) if status in Status.__members__ else None
    return Text(plain(status), style=_COLOURS.get(known, "red") if known else "")


def _task(row: dict[str, Any]) -> str:
    if not row["task"]:
        return ""
    return f"{row['task']['index'] + 1}/{row['tasks'] or '?'} {row['task']['name']}"


def _ago(when: str | None) -> str:
    if when is None:
        return ""
    return f"{_duration((datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds())} ago"


def _between(start: str | None, end: str | None) -> str:
    if start is None:
        return ""
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return _duration((until - datetime.fromisoformat(start)).total_seconds())


def _duration(seconds: float) -> str:
    """In the two largest units."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
