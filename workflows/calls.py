"""How each activity is called: its timeouts, its retries, and what a cancel does to it.

Activities are called by name, so that nothing of SSH, clouds or files is ever loaded into a workflow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityHandle

with workflow.unsafe.imports_passed_through():
    from towline.contract import (
        NON_RETRYABLE,
        Activity,
        Failure,
        ProvisionInput,
        ReleaseInput,
        RunTaskInput,
        StopTaskInput,
        TailLogsInput,
        WorkerSettings,
        from_json,
    )

_WITHOUT_END = timedelta(days=3650)
_MOST_STOPS = 20  # workers that die, or a bug of ours: neither may keep nodes for ever
_LOST_RELEASE_LIMIT = timedelta(minutes=2)
_RESTART_BACKOFF = timedelta(seconds=1)
_LONGEST_RESTART_BACKOFF = timedelta(seconds=60)


async def worker_settings() -> WorkerSettings:
    """The settings of the worker that runs this job's first workflow task; the same in every replay."""
    answer: Any = await workflow.execute_local_activity(
        Activity.WORKER_SETTINGS, start_to_close_timeout=timedelta(seconds=10), summary="settings"
    )
    return from_json(WorkerSettings, answer) or WorkerSettings()


def priority(wanted: int | None) -> Priority:
    """SkyPilot's -1000 to 1000, higher first, as Temporal's 5 to 1: who is served first when workers are busy."""
    return Priority(priority_key=None if wanted is None else max(1, min(5, 3 - round(wanted / 500))))


def provision(
    request: ProvisionInput, settings: WorkerSettings, summary: str, importance: Priority
) -> ActivityHandle[Any]:
    """Waits for capacity for as long as it takes. A cancel waits until the create in flight is found or done."""
    return workflow.start_activity(
        Activity.PROVISION,
        request,
        activity_id=f"{request.task_index}-provision-{request.generation}",
        summary=summary,
        start_to_close_timeout=timedelta(hours=1),
        heartbeat_timeout=_heartbeat(settings),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=importance,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=2),
            maximum_interval=timedelta(seconds=60),
            non_retryable_error_types=[
                Failure.FAILED_PRECHECKS,
                Failure.FAILED_NO_RESOURCE,
                Failure.FAILED_CONTROLLER,
                Failure.CANCELLED,
            ],
        ),
    )


def run_task(request: RunTaskInput, call: int, restarts_left: int, summary: str) -> ActivityHandle[Any]:
    """One activity attempt is about one attempt of the task. A cancel lets go at once: `stop_task` fences and kills."""
    return workflow.start_activity(
        Activity.RUN_TASK,
        request,
        activity_id=f"{request.task_index}-run_task-{call}",
        summary=summary,
        start_to_close_timeout=_WITHOUT_END,
        heartbeat_timeout=_heartbeat(request.settings),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        retry_policy=RetryPolicy(
            maximum_attempts=1 + restarts_left,
            initial_interval=_RESTART_BACKOFF,
            maximum_interval=_LONGEST_RESTART_BACKOFF,
            non_retryable_error_types=list(NON_RETRYABLE),
        ),
    )


def tail_logs(request: TailLogsInput, summary: str) -> ActivityHandle[Any]:
    """Retried without end; nothing waits for it but the bounded drain at the end of a task."""
    return workflow.start_activity(
        Activity.TAIL_LOGS,
        request,
        activity_id=f"{request.task_index}-tail_logs-{request.node.node_id}-{request.first_attempt}",
        summary=summary,
        start_to_close_timeout=_WITHOUT_END,
        heartbeat_timeout=_heartbeat(request.settings),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5)),
    )


def stop_task(request: StopTaskInput, call: int, summary: str) -> ActivityHandle[Any]:
    """Bounded by itself, so that only the time counts in which a worker tried; what cannot be stopped on the node goes
    away with the node."""
    return workflow.start_activity(
        Activity.STOP_TASK,
        request,
        activity_id=f"{request.task_index}-stop_task-{call}",
        summary=summary,
        start_to_close_timeout=timedelta(minutes=15),
        heartbeat_timeout=_heartbeat(request.settings),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=5),
            maximum_attempts=_MOST_STOPS,
        ),
    )


def release(
    request: ReleaseInput, settings: WorkerSettings, call: int, summary: str, *, lost: bool
) -> ActivityHandle[Any]:
    """Retried until the provider confirms. Nodes that are `lost` are waited for a while only: a machine that
    never comes
    back must hold up neither its replacement nor a cancel."""
    return workflow.start_activity(
        Activity.RELEASE,
        request,
        activity_id=f"{request.task_index}-release-{call}",
        summary=summary,
        start_to_close_timeout=timedelta(minutes=15),
        schedule_to_close_timeout=_LOST_RELEASE_LIMIT if lost else None,
        heartbeat_timeout=_heartbeat(settings),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60)),
    )


def _heartbeat(settings: WorkerSettings) -> timedelta:
    return timedelta(seconds=settings.heartbeat_timeout_s)
