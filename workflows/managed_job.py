"""`ManagedJob`: one job, an ordered list of tasks, each seen to its end."""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError, CancelledError

with workflow.unsafe.imports_passed_through():
    from towline.contract import (
        QUERY_STATUS,
        WORKFLOW_TYPE,
        JobRef,
        SearchAttribute,
        WorkerSettings,
        from_json,
        to_json,
    )
    from towline.details import details
    from towline.errors import InvalidJob
    from towline.naming import job_key
    from towline.spec import JobSpec, TaskSpec
    from towline.state import JobState, TaskState, document
    from towline.status import Status
    from towline.text import shorten

from workflows.calls import worker_settings
from workflows.task_walk import TaskWalk

_STATUS = SearchAttributeKey.for_keyword(SearchAttribute.STATUS)
_NAME = SearchAttributeKey.for_keyword(SearchAttribute.NAME)
_TASK = SearchAttributeKey.for_keyword(SearchAttribute.TASK)
_RESTARTS = SearchAttributeKey.for_int(SearchAttribute.RESTARTS)
_RECOVERIES = SearchAttributeKey.for_int(SearchAttribute.RECOVERIES)
_LONGEST_REFUSAL = 6000
_LONGEST_KEYWORD = 200


@workflow.defn(name=WORKFLOW_TYPE)
class ManagedJob:
    """Walks the tasks. The arguments are untyped and validated here, so that bad input is a failed execution."""

    def __init__(self) -> None:
        self._state: JobState | None = None
        self._settings = WorkerSettings()
        self._ended_at: str | None = None
        self._published: tuple[Any, ...] = ()

    @workflow.run
    async def run(self, raw: Any = None, resume: Any = None) -> dict[str, Any]:
        """Run the job `raw`, `{"name": ..., "tasks": [...]}`; `resume` is the state that a continue-as-new carries."""
        self._settings = await worker_settings()
        spec = self._parse(raw)
        self._state = self._resumed(resume) if resume is not None else self._begun(spec)
        for index in range(self._state.current, len(spec.tasks)):
            if workflow.info().is_continue_as_new_suggested():
                self._continue_as_new(raw)
            if Status(self._state.tasks[index].status).final:
                continue
            later = spec.tasks[1:] if index == 0 else []
            walk = TaskWalk(self._state, index, spec.tasks[index], self._settings, self._publish, later)
            await walk.run()
            if walk.to_be_continued:
                self._continue_as_new(raw)
            if walk.cancelled or self._state.tasks[index].status != Status.SUCCEEDED:
                break
        return self._finish()

    @workflow.query(name=QUERY_STATUS, description="The job as `towline status --json` shows it.")
    def status(self) -> dict[str, Any]:
        """The status document; empty until the job's input has been read."""
        return document(self._state, self._ended_at) if self._state else {}

    def _parse(self, raw: Any) -> JobSpec:
        try:
            return JobSpec.parse(raw)
        except InvalidJob as error:
            text = str(error)[:_LONGEST_REFUSAL]
            self._publish_attributes(Status.FAILED_PRECHECKS, "", "", 0, 0)
            workflow.upsert_memo({"reason": shorten(text)})
            workflow.set_current_details(f"**{Status.FAILED_PRECHECKS}**\n```\n{text}\n```")
            raise ApplicationError(text, type=Status.FAILED_PRECHECKS, non_retryable=True) from None

    def _begun(self, spec: JobSpec) -> JobState:
        info = workflow.info()
        key = job_key(info.workflow_id, info.first_execution_run_id)
        job = JobRef(job_id=info.workflow_id, key=key, name=spec.name or "")
        return JobState(job, _iso(info.start_time), [_task_state(task) for task in spec.tasks])

    def _resumed(self, resume: Any) -> JobState:
        state = from_json(JobState, resume)
        if state is None:
            text = "the second argument is not a state of this job; start a job with one argument"
            raise ApplicationError(text, type=Status.FAILED_PRECHECKS, non_retryable=True)
        return state

    def _continue_as_new(self, raw: Any) -> NoReturn:
        """Only between tasks and between attempts, so that nothing can be lost at the border."""
        workflow.continue_as_new(args=[raw, to_json(self._state)])

    def _publish(self) -> None:
        """Show the state in search attributes, memo and details; each costs history only when it has changed."""
        assert self._state is not None
        state = self._state
        task = f"{state.current + 1}/{len(state.tasks)} {state.tasks[state.current].name}"
        self._publish_attributes(state.status, state.job.name, task, state.restarts, state.recoveries)
        workflow.set_current_details(details(state))

    def _publish_attributes(self, status: Status, name: str, task: str, restarts: int, recoveries: int) -> None:
        shown = (str(status), name[:_LONGEST_KEYWORD], task[:_LONGEST_KEYWORD], restarts, recoveries)
        if not self._settings.search_attributes or shown == self._published:
            return
        self._published = shown
        workflow.upsert_search_attributes(
            [
                _STATUS.value_set(shown[0]),
                _NAME.value_set(shown[1]),
                _TASK.value_set(shown[2]),
                _RESTARTS.value_set(restarts),
                _RECOVERIES.value_set(recoveries),
            ]
        )

    def _finish(self) -> dict[str, Any]:
        """End the execution as the job ended: completed, canceled, or failed with the reason."""
        assert self._state is not None
        state, now = self._state, _iso(workflow.now())
        last = state.tasks[state.current]
        why = "cancelled" if not Status(last.status).final else f"task {last.name} ended {last.status}"
        state.cancel_pending(f"not started: {why}", now)
        self._ended_at = now
        self._publish()
        if state.status is Status.SUCCEEDED:
            return {"job_id": state.job.job_id, "status": str(state.status)}
        if state.reason:
            workflow.upsert_memo({"reason": state.reason})
        if state.status is Status.CANCELLED:
            raise CancelledError(state.reason)
        raise ApplicationError(shorten(state.reason) or str(state.status), type=state.status, non_retryable=True)


def _task_state(task: TaskSpec) -> TaskState:
    recovery = task.resources.job_recovery
    return TaskState(
        name=task.name or "",
        max_restarts=recovery.max_restarts_on_errors,
        strategy=recovery.strategy,
        restart_nodes=recovery.restart_nodes,
    )


def _iso(when: Any) -> str:
    return str(when.isoformat())
