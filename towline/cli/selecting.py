"""What of a job's logs can be asked for at all. Pure."""

from __future__ import annotations

from typing import Any

from towline.following import Selection
from towline.log_store import LogKey
from towline.status import Status


def impossible(document: dict[str, Any], selection: Selection, logs: list[LogKey]) -> str | None:
    """Why there is no log of what is selected and never will be, in one line; None while there may be one. `logs` are
    those of the job: they may tell of attempts that its status no longer knows."""
    tasks = [task for task in document["tasks"] if selection.task_index in (None, task["index"])]
    if not tasks or any(selection.takes(log) for log in logs):
        return None
    if selection.task_index is not None and _never_started(tasks[0], logs):
        reason = f": {tasks[0]['reason']}" if tasks[0]["reason"] else ""
        return f"{_name(tasks[0], document)} never started ({tasks[0]['status']}{reason})"
    of = _name(tasks[0], document) if len(tasks) == 1 else f"job {document['job_id']}"
    return _no_attempt(tasks, selection, logs, of) or _no_node(tasks, selection, of)


def _no_attempt(tasks: list[dict[str, Any]], selection: Selection, logs: list[LogKey], of: str) -> str | None:
    if selection.attempt is None or not all(Status(task["status"]).final for task in tasks):
        return None
    last = max(_last_attempt(task, logs) for task in tasks)
    if selection.attempt <= last:
        return None
    return f"{of} has no attempt {selection.attempt}; it had {last}" + (" in a task at most" if len(tasks) > 1 else "")


def _no_node(tasks: list[dict[str, Any]], selection: Selection, of: str) -> str | None:
    if selection.rank is None or not all(task["nodes"] for task in tasks):
        return None
    last = max(node["rank"] for task in tasks for node in task["nodes"])
    if selection.rank <= last:
        return None
    return f"{of} has no node {selection.rank}; " + (
        "its only node is 0" if last == 0 else f"its nodes are 0 to {last}"
    )


def _never_started(task: dict[str, Any], logs: list[LogKey]) -> bool:
    return Status(task["status"]).final and not task["nodes"] and _last_attempt(task, logs) == 0


def _last_attempt(task: dict[str, Any], logs: list[LogKey]) -> int:
    known = [each["attempt"] for each in task["attempts"]]
    return max([*known, *(log.attempt for log in logs if log.task_index == task["index"])], default=0)


def _name(task: dict[str, Any], document: dict[str, Any]) -> str:
    return f"task {task['index'] + 1}/{len(document['tasks'])} {task['name']}"
