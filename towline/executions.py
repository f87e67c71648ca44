"""A job's execution as the Temporal server lists and describes it, without asking the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from temporalio.api.failure.v1 import Failure
from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.converter import DataConverter

from towline.contract import Activity, RunTaskHeartbeat, SearchAttribute, from_json
from towline.errors import UsageError
from towline.naming import job_key
from towline.status import Status

STATUS = SearchAttributeKey.for_keyword(SearchAttribute.STATUS)
NAME = SearchAttributeKey.for_keyword(SearchAttribute.NAME)
TASK = SearchAttributeKey.for_keyword(SearchAttribute.TASK)
RESTARTS = SearchAttributeKey.for_int(SearchAttribute.RESTARTS)
RECOVERIES = SearchAttributeKey.for_int(SearchAttribute.RECOVERIES)
TERMINATED = "terminated by an operator, in Temporal"
ENDED = {
    WorkflowExecutionStatus.COMPLETED: Status.SUCCEEDED,
    WorkflowExecutionStatus.CANCELED: Status.CANCELLED,
    WorkflowExecutionStatus.TERMINATED: Status.CANCELLED,
    WorkflowExecutionStatus.FAILED: Status.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: Status.FAILED_CONTROLLER,
}
"""What an execution that has ended means for a job that does not say more."""

_PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
_FEW_ATTEMPTS = 2


def known_status(text: object) -> Status | None:
    """The status of that name; None for anything else."""
    return Status(text) if isinstance(text, str) and text in Status.__members__ else None


def key_of(description: WorkflowExecutionDescription) -> str:
    """The job key."""
    first = description.raw_description.workflow_execution_info.first_run_id or description.run_id
    return job_key(description.id, first)


def is_stuck(execution: WorkflowExecution) -> bool:
    """Whether the job's workflow code fails, again and again: the server says so, or has tried it several times."""
    if execution.status is not WorkflowExecutionStatus.RUNNING:
        return False
    if execution.typed_search_attributes.get(_PROBLEMS):
        return True
    if not isinstance(execution, WorkflowExecutionDescription):
        return False
    raw = execution.raw_description
    return raw.HasField("pending_workflow_task") and raw.pending_workflow_task.attempt > _FEW_ATTEMPTS


async def message_of(failure: Failure, converter: DataConverter) -> str:
    """What a failure says, also where that is encrypted."""
    if not failure.HasField("encoded_attributes"):
        return failure.message
    copy = Failure()
    copy.CopyFrom(failure)  # decoding works in place
    error = await converter.decode_failure(copy)
    return str(getattr(error, "message", error))


async def heartbeats(description: WorkflowExecutionDescription) -> list[tuple[int, RunTaskHeartbeat]]:
    """The heartbeats of `run_task` activities that are pending, with the index of their task."""
    found = []
    for pending in description.raw_description.pending_activities:
        if pending.activity_type.name != Activity.RUN_TASK or not pending.heartbeat_details.payloads:
            continue
        try:
            details = await description.data_converter.decode(pending.heartbeat_details.payloads)
            beat = from_json(RunTaskHeartbeat, details[0])
            index = int(pending.activity_id.split("-")[0])
        except (ValueError, RuntimeError):  # not JSON, or not of this version: the job's own document will do
            continue
        if beat is not None:
            found.append((index, beat))
    return found


async def row(execution: WorkflowExecution) -> dict[str, Any]:
    """One line of the queue, in the form of `queue --json`."""
    attributes = execution.typed_search_attributes
    memo = await _memo(execution)
    place, _, name = (attributes.get(TASK) or "").partition(" ")
    index, _, total = place.partition("/")
    submitted = execution.start_time
    end = execution.close_time or datetime.now(UTC)
    status, reason = _standing(execution, str(memo.get("reason") or ""))
    return {
        "job_id": execution.id,
        "name": attributes.get(NAME) or str(memo.get("name") or ""),
        "status": str(status),
        "reason": reason,
        "submitted_at": submitted.isoformat(),
        "duration_s": round((end - submitted).total_seconds(), 3),
        "task": {"index": int(index) - 1, "name": name} if index.isdecimal() else None,
        "tasks": int(total) if total.isdecimal() else memo.get("tasks"),
        "restarts": attributes.get(RESTARTS) or 0,
        "recoveries": attributes.get(RECOVERIES) or 0,
    }


async def _memo(execution: WorkflowExecution) -> Mapping[str, Any]:
    """What the job noted; of one that is encrypted for others, why it cannot be read: the rest of the queue can."""
    try:
        return await execution.memo()
    except UsageError as error:
        return {"reason": str(error)}


def _standing(execution: WorkflowExecution, reason: str) -> tuple[Status, str]:
    """The status that the job last published, corrected by what the server knows of its execution."""
    shown = known_status(execution.typed_search_attributes.get(STATUS))
    if execution.status is WorkflowExecutionStatus.TERMINATED:
        return Status.CANCELLED, TERMINATED
    ended = ENDED.get(execution.status) if execution.status else None
    if ended is None:
        return shown or Status.PENDING, reason
    return (shown if shown and shown.final else ended), reason


def status_query(statuses: list[str]) -> str:
    """A visibility condition that every execution shown in one of `statuses` fulfils; a few others may, too."""
    wanted = [Status(each) for each in statuses]
    names = ", ".join(f'"{each}"' for each in wanted)
    alternatives = [f"{SearchAttribute.STATUS} IN ({names})"]
    if Status.PENDING in wanted:
        alternatives.append(f'({SearchAttribute.STATUS} IS NULL AND ExecutionStatus = "Running")')
    closed = {_QUERY_NAMES[execution] for execution, status in ENDED.items() if status in wanted}
    alternatives += [f'ExecutionStatus = "{name}"' for name in sorted(closed)]
    return "(" + " OR ".join(alternatives) + ")"


_QUERY_NAMES = {
    WorkflowExecutionStatus.COMPLETED: "Completed",
    WorkflowExecutionStatus.CANCELED: "Canceled",
    WorkflowExecutionStatus.TERMINATED: "Terminated",
    WorkflowExecutionStatus.FAILED: "Failed",
    WorkflowExecutionStatus.TIMED_OUT: "TimedOut",
}
