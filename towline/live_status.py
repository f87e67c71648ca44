"""What is newer than the workflow's own document: the account in `run_task`'s heartbeat, folded in. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from towline.contract import AttemptStatus, Cause, RunTaskHeartbeat
from towline.status import Status
from towline.text import shorten


def with_heartbeat(document: dict[str, Any], task_index: int, beat: RunTaskHeartbeat) -> dict[str, Any]:
    """The status document with the attempts that ended since, and the one that goes on now."""
    tasks = list(document["tasks"])
    if not 0 <= task_index < len(tasks) or Status(tasks[task_index]["status"]).final:
        return document
    task = dict(tasks[task_index])
    known = {each["attempt"] for each in task["attempts"]}
    ended = [asdict(record) for record in beat.ledger.records if record.attempt not in known]
    task["attempts"] = [*task["attempts"], *ended]
    task["restarts"] = max(task["restarts"], min(beat.ledger.failures, task["max_restarts_on_errors"]))
    task["reason"] = shorten(_reason(task, beat)) or task["reason"]
    if beat.attempt > beat.ledger.last_attempt and task["status"] == Status.RUNNING:
        task["attempts"].append(_running(beat))
    tasks[task_index] = task
    return {**document, "tasks": tasks, "reason": _job_reason(document, tasks, task_index)}


def settled(document: dict[str, Any], status: Status, reason: str) -> dict[str, Any]:
    """The document of a job that was ended from outside, and so could not say so itself: `status` is the one that its
    first task which had not succeeded gets, and the tasks after it are CANCELLED."""
    tasks = list(document["tasks"])
    current = next((index for index, task in enumerate(tasks) if task["status"] != Status.SUCCEEDED), len(tasks))
    for index in range(current, len(tasks)):
        if not Status(tasks[index]["status"]).final:
            tasks[index] = {**tasks[index], "status": str(status if index == current else Status.CANCELLED)}
            tasks[index]["reason"] = reason
    return {**document, "status": str(status), "reason": reason or document["reason"], "tasks": tasks}


def _running(beat: RunTaskHeartbeat) -> dict[str, Any]:
    return {
        "attempt": beat.attempt,
        "status": AttemptStatus.RUNNING,
        "exit_code": None,
        "cause": None,
        "reason": beat.phase,
        "started_at": beat.started_at,
        "ended_at": None,
    }


def _reason(task: dict[str, Any], beat: RunTaskHeartbeat) -> str:
    if beat.unreachable_since:
        return f"node unreachable since {beat.unreachable_since}: {beat.note}"
    if beat.note:
        return beat.note
    if beat.phase == "setup" and not beat.ledger.failures:
        return "running setup"
    last = beat.ledger.records[-1] if beat.ledger.records else None
    if last and last.cause in (Cause.USER, Cause.SETUP) and last.status != AttemptStatus.SUCCEEDED:
        return f"restart {task['restarts']}/{task['max_restarts_on_errors']} after {last.reason}"
    return ""


def _job_reason(document: dict[str, Any], tasks: list[dict[str, Any]], task_index: int) -> str:
    reason = tasks[task_index]["reason"]
    if not reason:
        return str(document["reason"])
    if len(tasks) == 1:
        return str(reason)
    return shorten(f"task {task_index + 1}/{len(tasks)} {tasks[task_index]['name']}: {reason}")
