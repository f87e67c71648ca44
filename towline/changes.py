"""What to tell a person who follows a job: the words for the difference between two `status` documents. Pure."""

from __future__ import annotations

import re
from typing import Any

from towline.live_status import GIVING_BACK
from towline.status import Status

_WAITING = {
    Status.STARTING: "waiting for nodes",
    Status.RECOVERING: "waiting for other nodes",
    Status.CANCELLING: "waiting until its processes and nodes are gone",
}


_COUNTED = re.compile(r", attempt [0-9]+$")
"""The end of a reason that changes with every look at the same trouble."""


def changes(before: dict[str, Any], after: dict[str, Any], only: int | None = None) -> list[str]:
    """A line per change since `before`, which may be empty; of the task with index `only` where that is given."""
    earlier = {task["index"]: task for task in before.get("tasks", [])}
    tasks = after.get("tasks", [])
    shown = [task for task in tasks if only in (None, task["index"])]
    texts = [text for task in shown for text in _task_changes(earlier.get(task["index"], {}), task, len(tasks))]
    if not tasks and after.get("reason") and after["reason"] != before.get("reason"):
        texts += after["reason"].splitlines()
    return texts


def standing(document: dict[str, Any]) -> str:
    """Where the job is, in one line: its first task that is not SUCCEEDED."""
    tasks = document.get("tasks", [])
    for task in tasks:
        if task["status"] != Status.SUCCEEDED:
            return f"{_name(task, len(tasks))}: {_status(task)}"
    return str(document.get("status", ""))


def attempts_ended(document: dict[str, Any]) -> set[tuple[int, int]]:
    """Task index and number of every attempt that has ended."""
    return {
        (task["index"], each["attempt"])
        for task in document.get("tasks", [])
        for each in task["attempts"]
        if each["ended_at"] or Status(task["status"]).final
    }


def attempts_with_exit_code(document: dict[str, Any]) -> set[tuple[int, int]]:
    """Those whose end the node itself has told, so that all they printed could be read."""
    return {
        (task["index"], each["attempt"])
        for task in document.get("tasks", [])
        for each in task["attempts"]
        if each["exit_code"] is not None
    }


def _task_changes(before: dict[str, Any], after: dict[str, Any], total: int) -> list[str]:
    name = _name(after, total)
    known = {each["attempt"] for each in before.get("attempts", []) if each["ended_at"]}
    ended = [each for each in after["attempts"] if each["ended_at"] and each["attempt"] not in known]
    texts = [f"{name}: attempt {each['attempt']} {_how(each)}" for each in ended]
    changed = after["status"] != before.get("status", Status.PENDING)
    if changed or (after["reason"] and _is_news(before.get("reason", ""), after)):
        texts.append(f"{name}: {_status(after)}")
    return texts


def _is_news(before: str, after: dict[str, Any]) -> bool:
    """Whether a status that is the same has a reason that is not; a final one only while nodes are given back."""
    if Status(after["status"]).final and GIVING_BACK not in after["reason"]:
        return False
    return bool(_COUNTED.sub("", after["reason"]) != _COUNTED.sub("", before))


def _how(attempt: dict[str, Any]) -> str:
    return f"{attempt['status']}: {attempt['reason']}" if attempt["reason"] else str(attempt["status"])


def _status(task: dict[str, Any]) -> str:
    detail = task["reason"] or _WAITING.get(task["status"], "")
    return f"{task['status']} ({detail})" if detail else str(task["status"])


def _name(task: dict[str, Any], total: int) -> str:
    return f"task {task['index'] + 1}/{total} {task['name']}"
