"""Tables for people, on standard output: they fit the terminal, and are plain where there is none."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from towline.status import Status

if TYPE_CHECKING:
    from towline.providers.protocol import ProviderCheck
    from towline.spec import JobSpec

_WIDTH_WITHOUT_TERMINAL = 160
_FLEXIBLE = ("REASON", "DETAIL", "REMEDY")
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
    """The queue; columns that do not fit are left out, the least needed first."""
    console = _console()
    if not rows:
        console.print("no jobs; `towline launch FILE` submits one")
        return
    columns = {
        "ID": [row["job_id"] for row in rows],
        "STATUS": [row["status"] for row in rows],
        "TASK": [_task(row) for row in rows],
        "RESTARTS": [str(row["restarts"]) for row in rows],
        "RECOVERIES": [str(row["recoveries"]) for row in rows],
        "SUBMITTED": [_ago(row["submitted_at"]) for row in rows],
        "DURATION": [_duration(row["duration_s"]) for row in rows],
        "NAME": [row["name"] for row in rows],
        "REASON": [row["reason"] for row in rows],
    }
    _print_table(
        console,
        columns,
        dropped=("NAME", "RECOVERIES", "RESTARTS", "SUBMITTED", "DURATION", "TASK", "REASON"),
    )


def status_view(document: dict[str, Any]) -> None:
    """One job whole."""
    console = _console()
    head = Text.assemble(f"{_plain(document['job_id'])}  ", _status(document["status"]))
    console.print(head)
    if document["reason"]:
        console.print(Text(_plain(document["reason"])))
    console.print(Text(f"submitted {_ago(document['submitted_at'])}"))
    for task in document["tasks"]:
        _task_view(console, task, len(document["tasks"]))
    if document.get("web_ui_url"):
        console.print(Text(f"\nWeb UI: {document['web_ui_url']}"))
    if not Status(document["status"]).final:
        console.print(
            Text(f"towline logs {document['job_id']} follows it, towline cancel {document['job_id']} ends it")
        )


def _task_view(console: Console, task: dict[str, Any], total: int) -> None:
    counts = f"  restarts {task['restarts']}/{task['max_restarts_on_errors']}, recoveries {task['recoveries']}"
    title = f"\ntask {task['index'] + 1}/{total} {_plain(task['name'])}  "
    console.print(Text.assemble(title, _status(task["status"]), counts))
    if task["reason"]:
        console.print(Text("  " + _plain(task["reason"])))
    if task["attempts"]:
        attempts = task["attempts"]
        columns = {
            "ATTEMPT": [str(each["attempt"]) for each in attempts],
            "STATUS": [each["status"] for each in attempts],
            "EXIT CODE": ["" if each["exit_code"] is None else str(each["exit_code"]) for each in attempts],
            "CAUSE": [each["cause"] or "" for each in attempts],
            "STARTED": [_ago(each["started_at"]) for each in attempts],
            "REASON": [each["reason"] for each in attempts],
        }
        _print_table(console, columns, dropped=("STARTED", "CAUSE", "REASON", "EXIT CODE"))
    if task["nodes"]:
        columns = {
            "NODE": [each["node_id"] for each in task["nodes"]],
            "RANK": [str(each["rank"]) for each in task["nodes"]],
            "STATE": [each["state"] for each in task["nodes"]],
            "ADDRESS": [f"{each['host']}:{each['port']}" for each in task["nodes"]],
        }
        _print_table(console, columns, dropped=("ADDRESS", "RANK"))


def node_table(rows: list[dict[str, Any]]) -> None:
    """The nodes held."""
    console = _console()
    if not rows:
        console.print("no nodes are held")
        return
    columns = {
        "NODE": [row["node_id"] for row in rows],
        "STATE": [row["state"] for row in rows],
        "JOB": [row["job_id"] for row in rows],
        "TASK": [str(row["task_index"] + 1) for row in rows],
        "RANK": [str(row["rank"]) for row in rows],
        "ADDRESS": [f"{row['host']}:{row['port']}" for row in rows],
    }
    _print_table(console, columns, dropped=("RANK", "ADDRESS", "TASK"))


def check_table(rows: list[ProviderCheck]) -> None:
    """What each provider says of itself."""
    columns = {
        "PROVIDER": [row.provider for row in rows],
        "USABLE": ["yes" if row.usable else "no" for row in rows],
        "DETAIL": [row.detail for row in rows],
        "REMEDY": [row.remedy for row in rows],
    }
    _print_table(_console(), columns, dropped=())


def plan(job: JobSpec) -> None:
    """What a job would do."""
    tasks = job.tasks
    recoveries = [task.resources.job_recovery for task in tasks]
    columns: dict[str, list[str]] = {
        "TASK": [f"{index + 1}/{len(tasks)} {task.name}" for index, task in enumerate(tasks)],
        "INFRA": [task.resources.infra or task.resources.cloud or "local" for task in tasks],
        "CPUS": [task.resources.cpus or "" for task in tasks],
        "MEMORY": [task.resources.memory or "" for task in tasks],
        "RESTARTS": [str(recovery.max_restarts_on_errors) for recovery in recoveries],
        "STRATEGY": [recovery.strategy for recovery in recoveries],
    }
    console = _console()
    console.print(Text(f"job {job.name}: {len(tasks)} task{'' if len(tasks) == 1 else 's'}"))
    _print_table(console, columns, dropped=("STRATEGY", "MEMORY", "CPUS"))


def _console() -> Console:
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return Console(highlight=False, markup=False, emoji=False, width=width)


def _print_table(console: Console, columns: dict[str, list[str]], dropped: tuple[str, ...]) -> None:
    """Columns without a word in them are left out; then as many of `dropped` as the width asks for."""
    shown = {name: [_plain(cell) for cell in cells] for name, cells in columns.items() if any(cells)}
    for name in dropped:
        if _width(shown) <= console.width:
            break
        if name != "REASON" or _width(shown, reason=12) > console.width:
            shown.pop(name, None)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in shown:
        left = console.width - _width({other: cells for other, cells in shown.items() if other != name}) - 2
        widest = max(left, 10) if name in _FLEXIBLE else None
        table.add_column(name, overflow="ellipsis", no_wrap=name not in ("DETAIL", "REMEDY"), max_width=widest)
    for row in zip(*shown.values(), strict=True):
        table.add_row(
            *(_status(cell) if name == "STATUS" else Text(cell) for name, cell in zip(shown, row, strict=True))
        )
    console.print(table)


def _width(columns: dict[str, list[str]], reason: int = 30) -> int:
    total = 0
    for name, cells in columns.items():
        longest = max(len(cell) for cell in [name, *cells])
        total += (min(longest, reason) if name == "REASON" else longest) + 2
    return total


def _status(status: str) -> Text:
    known = Status(status) if status in Status.__members__ else None
    return Text(status, style=_COLOURS.get(known, "red") if known else "")


def _plain(text: str) -> str:
    """Nothing that a terminal would take for a command."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def _task(row: dict[str, Any]) -> str:
    if not row["task"]:
        return ""
    return f"{row['task']['index'] + 1}/{row['tasks'] or '?'} {row['task']['name']}"


def _ago(when: str | None) -> str:
    if when is None:
        return ""
    return f"{_duration((datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds())} ago"


def _duration(seconds: float) -> str:
    """In the two largest units."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
