"""What is newer than the workflow's own document: the account in `run_task`'s heartbeat, folded in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from towline.contract import Activity, AttemptStatus, Cause, RunTaskHeartbeat
from towline.state import attempt_document
from towline.status import Status
from towline.text import shorten

GIVING_BACK = "giving nodes back"
_WAITS = {Activity.PROVISION: "waiting for nodes", Activity.RELEASE: GIVING_BACK}
_LONGEST_FAILURE = 300
_LONGEST_BEFORE = 150
_SWEPT = "swept"


@dataclass(frozen=True)
class PendingActivity:
    """An activity that has failed before and is being tried again: `attempt` is Temporal's counter, `failure` its last
    failure."""

    activity: str
    task_index: int
    attempt: int
    failure: str


def with_pending(document: dict[str, Any], pending: PendingActivity) -> dict[str, Any]:
    """The status document with what keeps the task's nodes from coming, or from going."""
    tasks = list(document["tasks"])
    words = _WAITS.get(pending.activity)
    if words is None or not pending.failure or not 0 <= pending.task_index < len(tasks):
        return document
    counted = f", attempt {pending.attempt}" if pending.activity == Activity.PROVISION else ""
    before = tasks[pending.task_index]["reason"]
    waits = f"{words}: {shorten(pending.failure, _LONGEST_FAILURE)}{counted}"
    reason = f"{shorten(before, _LONGEST_BEFORE)}; {waits}" if before else waits
    tasks[pending.task_index] = {**tasks[pending.task_index], "reason": reason}
    return {**document, "tasks": tasks, "reason": _job_reason(document, tasks, pending.task_index)}


def with_heartbeat(document: dict[str, Any], task_index: int, beat: RunTaskHeartbeat) -> dict[str, Any]:
    """The status document with the attempts that ended since, and the one that goes on now."""
    tasks = list(document["tasks"])
    if not 0 <= task_index < len(tasks) or Status(tasks[task_index]["status"]).final:
        return document
    task = dict(tasks[task_index])
    known = {each["attempt"] for each in task["attempts"]}
    ended = [record for record in beat.ledger.records if record.attempt not in known]
    task["attempts"] = [*task["attempts"], *map(attempt_document, ended)]
    task["outputs"] = ended[-1].outputs if ended else task.get("outputs", {})
    task["restarts"] = max(task["restarts"], min(beat.ledger.failures, task["max_restarts_on_errors"]))
    task["reason"] = shorten(_reason(task, beat)) or task["reason"]
    if beat.attempt > beat.ledger.last_attempt and task["status"] == Status.RUNNING:
        task["attempts"].append(_running(beat))
    tasks[task_index] = task
    return {**document, "tasks": tasks, "reason": _job_reason(document, tasks, task_index)}


def settled(document: dict[str, Any], status: Status, reason: str, ended_at: str | None = None) -> dict[str, Any]:
    """The document of a job that was ended from outside, and so could not say so itself: `status` is the one that its
    first task which had not succeeded gets, and the tasks after it are CANCELLED. Its nodes are left to the sweep."""
    tasks = list(document["tasks"])
    current = next((index for index, task in enumerate(tasks) if task["status"] != Status.SUCCEEDED), len(tasks))
    for index in range(current, len(tasks)):
        if not Status(tasks[index]["status"]).final:
            tasks[index] = _cut_off(tasks[index], status if index == current else Status.CANCELLED, reason, ended_at)
    return {**document, "status": str(status), "reason": reason or document["reason"], "tasks": tasks}


def _cut_off(task: dict[str, Any], status: Status, reason: str, ended_at: str | None) -> dict[str, Any]:
    cut = {
        "status": str(AttemptStatus.CANCELLED),
        "cause": str(Cause.CANCELLED),
        "reason": reason,
        "ended_at": ended_at,
    }
    attempts = [{**each, **cut} if each["status"] == AttemptStatus.RUNNING else each for each in task["attempts"]]
    nodes = [{**each, "state": _SWEPT} if each["state"] == "held" else each for each in task["nodes"]]
    ended = {"status": str(status), "reason": reason, "ended_at": ended_at or task["ended_at"]}
    return {**task, **ended, "attempts": attempts, "nodes": nodes}


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
