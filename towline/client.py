"""Jobs, as a client of Temporal sees them: submit, status, queue, cancel, wait."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from towline.config import Config
from towline.contract import (
    QUERY_STATUS,
    WORKFLOW_TYPE,
    Activity,
    RunTaskHeartbeat,
    SearchAttribute,
    from_json,
)
from towline.embedded import web_ui_address
from towline.errors import JobNotFound, ServerUnreachable, UsageError
from towline.live_status import with_heartbeat
from towline.naming import job_key
from towline.server import connect, prepare
from towline.spec import JobSpec
from towline.state import shorten
from towline.status import Status

_QUERY_LIMIT = timedelta(seconds=5)
_RETRY_PAUSE_S = 1.0
_LONGEST_JOB_ID = 200
_STATUSES = frozenset(Status)
_UNUSABLE_IN_A_JOB_ID = re.compile(r"[\x00-\x1f\x7f]")
_STATUS = SearchAttributeKey.for_keyword(SearchAttribute.STATUS)
_NAME = SearchAttributeKey.for_keyword(SearchAttribute.NAME)
_TASK = SearchAttributeKey.for_keyword(SearchAttribute.TASK)
_RESTARTS = SearchAttributeKey.for_int(SearchAttribute.RESTARTS)
_RECOVERIES = SearchAttributeKey.for_int(SearchAttribute.RECOVERIES)
_PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
_ENDED = {
    WorkflowExecutionStatus.COMPLETED: Status.SUCCEEDED,
    WorkflowExecutionStatus.CANCELED: Status.CANCELLED,
    WorkflowExecutionStatus.TERMINATED: Status.CANCELLED,
    WorkflowExecutionStatus.FAILED: Status.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: Status.FAILED_CONTROLLER,
}


@dataclass(frozen=True)
class Submission:
    """A job on the server. `attached`: the id was there before, and nothing was started."""

    job_id: str
    run_id: str
    attached: bool


class JobClient:
    """The jobs of one namespace. Every method may raise ServerUnreachable."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._config = config

    @classmethod
    async def connect(cls, config: Config, address: str | None = None) -> JobClient:
        """A client of the server at `address`, or of the one that the environment configures."""
        return cls(await connect(address), config)

    async def submit(self, job: JobSpec, job_id: str | None = None) -> Submission:
        """Start the job. A `job_id` that exists, running or ended, is attached to instead."""
        if job_id is not None:
            _check_job_id(job_id)
        identity = job_id or f"{job.name}-{secrets.token_hex(4)}"
        async with _translated():
            try:
                return await self._start(job, identity)
            except WorkflowAlreadyStartedError as error:
                return Submission(identity, error.run_id or "", attached=True)
            except RPCError as error:
                if (
                    error.status is not RPCStatusCode.INVALID_ARGUMENT
                    or "search attribute" not in error.message.lower()
                ):
                    raise
                await prepare(self._client)
                return await self._start(job, identity)

    async def _start(self, job: JobSpec, job_id: str) -> Submission:
        attributes = [
            SearchAttributePair(_STATUS, Status.PENDING.value),
            SearchAttributePair(_NAME, job.name or ""),
        ]
        handle: WorkflowHandle[Any, Any] = await self._client.start_workflow(
            WORKFLOW_TYPE,
            job.to_input(),
            id=job_id,
            task_queue=self._config.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            static_summary=shorten(" -> ".join(task.name or "" for task in job.tasks), 200),
            search_attributes=TypedSearchAttributes(attributes),
            memo={"tasks": len(job.tasks)},
        )
        return Submission(job_id, handle.first_execution_run_id or "", attached=False)

    async def status(self, job_id: str) -> dict[str, Any]:
        """The `status --json` document. Raises JobNotFound."""
        async with _translated(job_id):
            description = await self._describe(job_id)
            document = await self._document(job_id, description)
        document["web_ui_url"] = self.web_ui_url(job_id, description.run_id)
        ended = _ENDED.get(description.status) if description.status else None
        if ended and description.close_time:
            document["ended_at"] = document["ended_at"] or description.close_time.isoformat()
        return document

    async def _document(self, job_id: str, description: WorkflowExecutionDescription) -> dict[str, Any]:
        """The workflow's own document made live; a lesser one from the server alone where the workflow cannot
        answer."""
        running = description.status is WorkflowExecutionStatus.RUNNING
        stuck = _stuck(description) if running else None
        document: dict[str, Any] = {}
        problem = ""
        if not stuck:
            try:
                handle = self._client.get_workflow_handle(job_id, run_id=description.run_id)
                document = await handle.query(QUERY_STATUS, rpc_timeout=_QUERY_LIMIT) or {}
            except (WorkflowQueryFailedError, RPCError) as error:
                problem = self._no_answer(error)
        if not document:
            document = await self._without_workflow(job_id, description, stuck or (problem if running else ""))
        elif not running:
            _settle(document, description)
        for task_index, beat in _heartbeats(description):
            document = with_heartbeat(document, task_index, beat)
        if stuck:
            document["reason"] = stuck
        return document

    def _no_answer(self, error: Exception) -> str:
        queue = self._config.task_queue
        if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
            return f"no worker answers on task queue {queue}; start one with `towline up` or `towline worker`"
        return f"the job cannot be asked: {error}"

    async def _without_workflow(
        self, job_id: str, description: WorkflowExecutionDescription, reason: str
    ) -> dict[str, Any]:
        row = await _row(description)
        status = row["status"]
        if description.status is WorkflowExecutionStatus.FAILED:
            status, reason = await self._failure(job_id, description)
        return {
            "job_id": job_id,
            "name": row["name"],
            "status": status,
            "reason": reason or row["reason"],
            "submitted_at": row["submitted_at"],
            "ended_at": None,
            "web_ui_url": None,
            "tasks": [],
        }

    async def _failure(self, job_id: str, description: WorkflowExecutionDescription) -> tuple[str, str]:
        try:
            await self._client.get_workflow_handle(job_id, run_id=description.run_id).result()
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type in _STATUSES:
                return str(cause.type), cause.message
            return Status.FAILED, shorten(str(cause))
        return Status.FAILED, ""

    async def queue(self, *, status: list[str] | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest jobs, at most `limit`, in the form of `queue --json`."""
        query = f'WorkflowType="{WORKFLOW_TYPE}"'
        if status:
            query += " AND " + _status_query(status)
        async with _translated():
            found = self._client.list_workflows(query, limit=limit, page_size=min(limit, 1000))
            return [await _row(each) async for each in found]

    async def running(self) -> list[str]:
        """The ids of all jobs that run."""
        query = f'WorkflowType="{WORKFLOW_TYPE}" AND ExecutionStatus="Running"'
        async with _translated():
            return [each.id async for each in self._client.list_workflows(query)]

    async def cancel(self, job_id: str) -> str:
        """Ask for the job's end: CANCELLING, or the final status of a job that has ended. Raises JobNotFound."""
        async with _translated(job_id):
            description = await self._describe(job_id)
            if description.status is not WorkflowExecutionStatus.RUNNING:
                return str((await self.status(job_id))["status"])
            await self._client.get_workflow_handle(job_id).cancel()
            return str(Status.CANCELLING)

    async def wait(self, job_id: str) -> Status:
        """The final status, once there is one; waits through restarts of the server. Raises JobNotFound."""
        while True:
            try:
                async with _translated(job_id):
                    await self._describe(job_id)
                    return await self._result(job_id)
            except ServerUnreachable:
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _result(self, job_id: str) -> Status:
        try:
            answer = await self._client.get_workflow_handle(job_id).result()
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                return Status(cause.type) if cause.type in _STATUSES else Status.FAILED
            description = await self._describe(job_id)
            return _ENDED.get(description.status or WorkflowExecutionStatus.FAILED, Status.FAILED)
        status = answer.get("status") if isinstance(answer, dict) else None
        return Status(status) if status in _STATUSES else Status.SUCCEEDED

    async def log_key(self, job_id: str) -> str:
        """The job key: under which its logs are kept."""
        async with _translated(job_id):
            return _key(await self._describe(job_id))

    def web_ui_url(self, job_id: str, run_id: str | None) -> str | None:
        """Where a person sees the job in the Temporal Web UI; None where that is not known."""
        base = web_ui_address(self._config) if not self._config.temporal_configured else None
        if base is None and "tmprl.cloud" in str(self._client.service_client.config.target_host):
            base = "https://cloud.temporal.io"
        if base is None:
            return None
        return f"{base}/namespaces/{self._client.namespace}/workflows/{_quoted(job_id)}/{run_id or ''}".rstrip("/")

    async def _describe(self, job_id: str) -> WorkflowExecutionDescription:
        description = await self._client.get_workflow_handle(job_id).describe()
        if description.workflow_type != WORKFLOW_TYPE:
            raise JobNotFound(f"{job_id} is a workflow of type {description.workflow_type}, not a job")
        return description


def _check_job_id(job_id: str) -> None:
    if not 1 <= len(job_id) <= _LONGEST_JOB_ID or _UNUSABLE_IN_A_JOB_ID.search(job_id):
        raise UsageError(f"--job-id must have 1 to {_LONGEST_JOB_ID} characters, none of them a control character")


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _key(description: WorkflowExecutionDescription) -> str:
    first = description.raw_description.workflow_execution_info.first_run_id or description.run_id
    return job_key(description.id, first)


def _settle(document: dict[str, Any], description: WorkflowExecutionDescription) -> None:
    """A job that was ended from outside says in its own document that it runs: the server knows better."""
    if description.status is WorkflowExecutionStatus.TERMINATED:
        document["status"] = str(Status.CANCELLED)
        document["reason"] = "terminated in Temporal; its nodes are swept"
    elif not Status(document["status"]).final and description.status in _ENDED:
        document["status"] = str(_ENDED[description.status])


def _stuck(description: WorkflowExecutionDescription) -> str | None:
    """Why the job's workflow code does not get on; None when it does."""
    pending = description.raw_description.pending_workflow_task
    attempt = pending.attempt if description.raw_description.HasField("pending_workflow_task") else 0
    problems = description.typed_search_attributes.get(_PROBLEMS)
    if attempt <= 2 and not problems:
        return None
    detail = f" ({', '.join(problems)})" if problems else ""
    return (
        f"stuck: its workflow task fails, attempt {attempt}{detail}; the task on its node goes on. "
        "See the worker's log; a mended worker lets the job go on"
    )


def _heartbeats(description: WorkflowExecutionDescription) -> list[tuple[int, RunTaskHeartbeat]]:
    """The heartbeats of `run_task` activities that are pending, with the index of their task."""
    found = []
    for pending in description.raw_description.pending_activities:
        if pending.activity_type.name != Activity.RUN_TASK or not pending.heartbeat_details.payloads:
            continue
        payload = pending.heartbeat_details.payloads[0]
        try:
            beat = from_json(RunTaskHeartbeat, json.loads(payload.data))
            index = int(pending.activity_id.split("-")[0])
        except ValueError:
            continue
        if beat is not None:
            found.append((index, beat))
    return found


async def _row(execution: WorkflowExecution) -> dict[str, Any]:
    """One line of the queue, from what the server lists: no job is asked."""
    attributes = execution.typed_search_attributes
    memo = await execution.memo()
    task = attributes.get(_TASK) or ""
    place, _, name = task.partition(" ")
    index, _, total = place.partition("/")
    submitted = execution.start_time
    end = execution.close_time or datetime.now(UTC)
    status, reason = _row_status(execution, attributes.get(_STATUS), str(memo.get("reason") or ""))
    return {
        "job_id": execution.id,
        "name": attributes.get(_NAME) or "",
        "status": status,
        "reason": reason,
        "submitted_at": submitted.isoformat(),
        "duration_s": round((end - submitted).total_seconds(), 3),
        "task": {"index": int(index) - 1, "name": name} if index.isdigit() else None,
        "tasks": int(total) if total.isdigit() else int(memo.get("tasks") or 0) or None,
        "restarts": attributes.get(_RESTARTS) or 0,
        "recoveries": attributes.get(_RECOVERIES) or 0,
    }


def _row_status(execution: WorkflowExecution, shown: str | None, reason: str) -> tuple[str, str]:
    """The status that the job last published, corrected by what the server knows of its execution."""
    known = Status(shown) if shown in _STATUSES else None
    if execution.status is WorkflowExecutionStatus.RUNNING:
        problems = execution.typed_search_attributes.get(_PROBLEMS)
        if problems:
            return str(known or Status.PENDING), f"stuck: {', '.join(problems)}"
        return str(known or Status.PENDING), reason
    ended = _ENDED.get(execution.status) if execution.status else None
    if execution.status is WorkflowExecutionStatus.TERMINATED:
        return str(Status.CANCELLED), "terminated in Temporal"
    if known and known.final:
        return str(known), reason
    return str(ended or known or Status.PENDING), reason


def _status_query(statuses: list[str]) -> str:
    wanted = ", ".join(f'"{status}"' for status in statuses)
    return f"{SearchAttribute.STATUS} IN ({wanted})"


@asynccontextmanager
async def _translated(job_id: str | None = None) -> AsyncIterator[None]:
    """Temporal's errors in Towline's words."""
    try:
        yield
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and job_id is not None:
            raise JobNotFound(f"no job {job_id} on this server; `towline queue` lists the jobs") from None
        if error.status in (
            RPCStatusCode.UNAVAILABLE,
            RPCStatusCode.DEADLINE_EXCEEDED,
            RPCStatusCode.CANCELLED,
        ):
            raise ServerUnreachable(f"the Temporal server does not answer ({error.message})") from None
        raise UsageError(f"the Temporal server refuses this: {error.message}") from None
