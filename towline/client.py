"""Jobs, as a client of Temporal sees them: submit, status, queue, cancel, wait."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from towline import executions
from towline.config import Config
from towline.contract import QUERY_STATUS, WORKFLOW_TYPE
from towline.embedded import web_ui_address
from towline.errors import JobNotFound, ServerUnreachable, UsageError
from towline.hiding import hidden
from towline.live_status import PendingActivity, settled, with_heartbeat, with_pending
from towline.naming import slug
from towline.payload_codec import data_converter
from towline.server import UNREACHABLE, connect, namespace_missing, prepare, why
from towline.spec import JobSpec
from towline.status import Status
from towline.text import shorten

_QUERY_LIMIT = timedelta(seconds=5)
_RETRY_PAUSE_S = 0.5
_LONGEST_RETRY_PAUSE_S = 10.0
_LONGEST_JOB_ID = 200
_LONGEST_ERROR = 300
_LATEST_EVENTS = 50
_MOST_LINES = 20
_TERMINATED = "terminated in Temporal"
_INPUT_DIGEST = "input_sha256"  # key of the memo
_UNUSABLE_IN_A_JOB_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Submission:
    """A job on the server. `attached`: the id was there before, and nothing was started."""

    job_id: str
    run_id: str
    attached: bool


class JobClient:
    """The jobs of one namespace. Every method may raise ServerUnreachable, and UsageError when the server refuses."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._config = config

    @classmethod
    async def connect(cls, config: Config, address: str | None = None) -> JobClient:
        """A client of the server at `address`, or of the one that the environment configures."""
        return cls(await connect(address, data_converter(config)), config)

    async def submit(self, job: JobSpec, job_id: str | None = None) -> Submission:
        """Start the job. A `job_id` that exists, running or ended, is attached to instead; UsageError when that was
        submitted with other content."""
        if job_id is not None:
            check_job_id(job_id)
        identity = job_id or f"{slug(job.name or '')}-{secrets.token_hex(4)}"
        async with _translated():
            try:
                return await self._start_despite_attributes(job, identity)
            except WorkflowAlreadyStartedError:
                return await self._attach(job, identity)

    async def _start_despite_attributes(self, job: JobSpec, job_id: str) -> Submission:
        """With search attributes; without them where the server has none and will not get any."""
        names = [
            SearchAttributePair(executions.STATUS, Status.PENDING.value),
            SearchAttributePair(executions.NAME, job.name or ""),
        ]
        attributes = TypedSearchAttributes(names)
        try:
            return await self._start(job, job_id, attributes)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT or "search attribute" not in error.message.lower():
                raise
        shortcomings = await prepare(self._client)
        return await self._start(job, job_id, TypedSearchAttributes.empty if shortcomings else attributes)

    async def _start(self, job: JobSpec, job_id: str, attributes: TypedSearchAttributes) -> Submission:
        request = job.to_input()
        try:
            handle: WorkflowHandle[Any, Any] = await self._client.start_workflow(
                WORKFLOW_TYPE,
                request,
                id=job_id,
                task_queue=self._config.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                static_summary=shorten(" -> ".join(task.name or "" for task in job.tasks), 200),
                search_attributes=attributes,
                memo={"name": job.name or "", "tasks": len(job.tasks), _INPUT_DIGEST: _digest(request)},
            )
        except RPCError as error:
            if "exceeds limit" in error.message or "larger than max" in error.message:
                size = len(json.dumps(request)) // 1024
                text = f"the job is too large for Temporal: {size} KiB, at most 2048; fetch what is large in `setup`"
                raise UsageError(text) from None
            raise
        return Submission(job_id, handle.first_execution_run_id or "", attached=False)

    async def _attach(self, job: JobSpec, job_id: str) -> Submission:
        description = await self._client.get_workflow_handle(job_id).describe()
        if description.workflow_type != WORKFLOW_TYPE:
            text = f"--job-id {job_id}: a workflow of type {description.workflow_type} has this id; choose another"
            raise UsageError(text)
        known = (await description.memo()).get(_INPUT_DIGEST)  # of a job that another client started there is none
        if known not in (None, _digest(job.to_input())):
            text = f"job {job_id} exists and was submitted with other content; choose another --job-id"
            raise UsageError(text)
        return Submission(job_id, description.run_id, attached=True)

    async def status(self, job_id: str) -> dict[str, Any]:
        """The `status --json` document. Raises JobNotFound."""
        async with _translated(job_id):
            description = await self._describe(job_id)
            if description.status is WorkflowExecutionStatus.RUNNING:
                document = await self._live(description)
            else:
                document = await self._ended(description)
        document["web_ui_url"] = self.web_ui_url(job_id, description.run_id)
        return document

    async def _live(self, description: WorkflowExecutionDescription) -> dict[str, Any]:
        """The workflow's own document made live; a lesser one, and why, where the workflow cannot answer."""
        if executions.is_stuck(description):
            return await self._lesser(description, reason=await self._why_stuck(description))
        try:
            document = await self._ask(description)
        except WorkflowQueryFailedError as error:
            return await self._lesser(description, reason=f"the job cannot be asked: {error}")
        except RPCError as error:
            if error.status is RPCStatusCode.UNAVAILABLE:
                raise
            if "failed state" in error.message:
                return await self._lesser(description, reason=await self._why_stuck(description))
            queue = description.task_queue
            reason = f"no worker is polling task queue {queue}: start one with `towline up` or `towline worker`"
            return await self._lesser(description, reason=reason)
        if not document:
            return await self._lesser(description)
        for task_index, beat in await executions.heartbeats(description):
            document = with_heartbeat(document, task_index, beat)
        for pending in await _pending(description):
            document = with_pending(document, pending)
        return document

    async def _ended(self, description: WorkflowExecutionDescription) -> dict[str, Any]:
        """What the job said last, where a worker can tell; what the server knows, anyhow."""
        try:
            document = await self._ask(description)
        except (WorkflowQueryFailedError, RPCError):
            document = {}
        if not document:
            document = await self._lesser(description)
            if description.status is WorkflowExecutionStatus.FAILED:
                document["status"], document["reason"] = await self._failure(description)
        elif not Status(document["status"]).final:
            row = await executions.row(description)
            closed = description.close_time.isoformat() if description.close_time else None
            reason = _TERMINATED if description.status is WorkflowExecutionStatus.TERMINATED else row["reason"]
            document = settled(document, Status(row["status"]), reason, closed)
        if description.status is WorkflowExecutionStatus.TERMINATED:
            document["reason"] = _TERMINATED
        if description.close_time and not document["ended_at"]:
            document["ended_at"] = description.close_time.isoformat()
        return document

    async def _ask(self, description: WorkflowExecutionDescription) -> dict[str, Any]:
        """The workflow's own document; empty before it has one."""
        handle = self._client.get_workflow_handle(description.id, run_id=description.run_id)
        return await handle.query(QUERY_STATUS, rpc_timeout=_QUERY_LIMIT) or {}

    async def _lesser(self, description: WorkflowExecutionDescription, reason: str = "") -> dict[str, Any]:
        """The document as far as the server alone can write it: without the tasks."""
        row = await executions.row(description)
        return {
            "job_id": row["job_id"],
            "name": row["name"],
            "status": row["status"],
            "reason": reason or row["reason"],
            "submitted_at": row["submitted_at"],
            "ended_at": None,
            "web_ui_url": None,
            "tasks": [],
        }

    async def _failure(self, description: WorkflowExecutionDescription) -> tuple[str, str]:
        try:
            await self._client.get_workflow_handle(description.id, run_id=description.run_id).result()
        except WorkflowFailureError as error:
            return str(_failed_status(error)), _lines(str(getattr(error.cause, "message", error.cause)))
        return str(Status.FAILED), ""

    async def _why_stuck(self, description: WorkflowExecutionDescription) -> str:
        """The error that the workflow code runs into; the server writes its first occurrence into the history."""
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=ExecutionId(workflow_id=description.id, run_id=description.run_id),
            maximum_page_size=_LATEST_EVENTS,
        )
        answer = await self._client.workflow_service.get_workflow_execution_history_reverse(request)
        failures = [
            event.workflow_task_failed_event_attributes.failure
            for event in answer.history.events
            if event.HasField("workflow_task_failed_event_attributes")
        ]
        said = "its workflow task is not answered in time"
        if failures:
            said = await executions.message_of(failures[0], description.data_converter)
        error = shorten(said, _LONGEST_ERROR)
        return f"stuck: {error}; what runs on its nodes goes on, and a mended worker lets the job go on"

    async def queue(self, *, status: list[str] | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest jobs, at most `limit`, in the form of `queue --json`. Only stuck ones are asked what ails them."""
        query = f'WorkflowType="{WORKFLOW_TYPE}"'
        if status:
            query += " AND " + executions.status_query(status)
        async with _translated():
            live = await self._rows(f'{query} AND ExecutionStatus="Running"', status, limit)
            ended = await self._rows(f'{query} AND ExecutionStatus!="Running"', status, limit)
        return sorted(live + ended, key=lambda row: str(row["submitted_at"]), reverse=True)[:limit]

    async def _rows(self, query: str, status: list[str] | None, limit: int) -> list[dict[str, Any]]:
        """The server lists those that run by their start, and those that have ended by their end."""
        rows: list[dict[str, Any]] = []
        async for execution in self._client.list_workflows(query, page_size=min(limit, 1000)):
            row = await executions.row(execution)
            if status and row["status"] not in status:
                continue
            if executions.is_stuck(execution):
                row["reason"] = await self._why_stuck(await self._describe(execution.id))
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    async def running(self) -> list[str]:
        """The ids of all jobs that run."""
        query = f'WorkflowType="{WORKFLOW_TYPE}" AND ExecutionStatus="Running"'
        async with _translated():
            return [each.id async for each in self._client.list_workflows(query)]

    async def cancel(self, job_id: str) -> str:
        """Ask for the job's end: CANCELLING, or the final status of a job that has ended. Raises JobNotFound."""
        async with _translated(job_id):
            description = await self._describe(job_id)
            if description.status is WorkflowExecutionStatus.RUNNING:
                try:
                    await self._client.get_workflow_handle(job_id, run_id=description.run_id).cancel()
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:  # else: it has ended this very moment
                        raise
                else:
                    return str(Status.CANCELLING)
        return str((await self.status(job_id))["status"])

    async def wait(self, job_id: str) -> Status:
        """The final status, once there is one; waits through restarts of the server. Raises JobNotFound."""
        pause_s = _RETRY_PAUSE_S
        while True:
            try:
                async with _translated(job_id):
                    await self._describe(job_id)
                    pause_s = _RETRY_PAUSE_S
                    return await self._result(job_id)
            except ServerUnreachable:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_PAUSE_S)

    async def _result(self, job_id: str) -> Status:
        try:
            answer = await self._client.get_workflow_handle(job_id).result()
        except WorkflowFailureError as error:
            if isinstance(error.cause, ApplicationError):
                return _failed_status(error)
            description = await self._describe(job_id)
            return executions.ENDED.get(description.status or WorkflowExecutionStatus.FAILED, Status.FAILED)
        said = executions.known_status(answer.get("status")) if isinstance(answer, dict) else None
        return said or Status.SUCCEEDED

    async def log_key(self, job_id: str) -> str:
        """The job key: under which its logs are kept."""
        async with _translated(job_id):
            return executions.key_of(await self._describe(job_id))

    def web_ui_url(self, job_id: str, run_id: str | None) -> str | None:
        """Where a person sees the job in the Temporal Web UI; None where that is not known."""
        address = self._client.service_client.config.target_host
        base = "https://cloud.temporal.io" if "tmprl.cloud" in address else web_ui_address(self._config, address)
        if base is None:
            return None
        place = "/".join(urllib.parse.quote(each, safe="") for each in (job_id, run_id or "") if each)
        return f"{base}/namespaces/{self._client.namespace}/workflows/{place}"

    async def _describe(self, job_id: str) -> WorkflowExecutionDescription:
        if not job_id or _UNUSABLE_IN_A_JOB_ID.search(job_id):
            raise JobNotFound(f"{job_id!r} is not the id of a job; `towline queue` lists the jobs")
        description = await self._client.get_workflow_handle(job_id).describe()
        if description.workflow_type != WORKFLOW_TYPE:
            raise JobNotFound(f"{job_id} is a workflow of type {description.workflow_type}, not a job")
        return description


def check_job_id(job_id: str) -> None:
    """Raises UsageError when no job may have this id."""
    if not 1 <= len(job_id) <= _LONGEST_JOB_ID or _UNUSABLE_IN_A_JOB_ID.search(job_id):
        raise UsageError(f"--job-id must have 1 to {_LONGEST_JOB_ID} characters, none of them a control character")


def _lines(text: str) -> str:
    """A failure's message with its lines, each bounded, and their number too."""
    lines = [shorten(line) for line in text.splitlines() if line.strip()]
    more = [f"and {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
    return "\n".join(lines[:_MOST_LINES] + more)


def _digest(request: dict[str, Any]) -> str:
    """Of the workflow's input as canonical JSON. Values of secrets are left out: they are sealed anew each time, and a
    digest of short ones would tell them to whoever tries all."""
    return hashlib.sha256(json.dumps(hidden(request), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def _pending(description: WorkflowExecutionDescription) -> list[PendingActivity]:
    """The activities that have failed and are tried again."""
    found = []
    for pending in description.raw_description.pending_activities:
        place = pending.activity_id.split("-")[0]
        if pending.HasField("last_failure") and place.isdecimal():
            failure = await executions.message_of(pending.last_failure, description.data_converter)
            found.append(PendingActivity(pending.activity_type.name, int(place), pending.attempt, failure))
    return found


def _failed_status(error: WorkflowFailureError) -> Status:
    cause = error.cause
    said = executions.known_status(cause.type) if isinstance(cause, ApplicationError) else None
    return said or Status.FAILED


@asynccontextmanager
async def _translated(job_id: str | None = None) -> AsyncIterator[None]:
    """Temporal's errors in Towline's words."""
    try:
        yield
    except RPCError as error:
        if namespace_missing(error):
            raise UsageError(f"{error.message.rstrip('.')} on the Temporal server; check TEMPORAL_NAMESPACE") from None
        if error.status is RPCStatusCode.NOT_FOUND and job_id is not None:
            raise JobNotFound(f"no job {job_id} on this server; `towline queue` lists the jobs") from None
        if error.status in UNREACHABLE:
            raise ServerUnreachable(f"the Temporal server does not answer ({why(error.message)})") from None
        raise UsageError(f"the Temporal server refuses this: {error.message}") from None
