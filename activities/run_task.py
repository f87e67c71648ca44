"""`run_task`: one activity attempt is about one attempt of the task; starting and re-attaching are the same thing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.failures import failure
from activities.heartbeat import WorkerStopping, beating, until_worker_stops
from towline.attempting import Attempting, Progress
from towline.contract import (
    Activity,
    AttemptRecord,
    AttemptStatus,
    Cause,
    Failure,
    Ledger,
    RunTaskFailure,
    RunTaskHeartbeat,
    RunTaskInput,
    RunTaskResult,
    from_json,
    to_json,
)
from towline.errors import AttemptSuperseded, TaskClosed
from towline.ledger import is_full, merge
from towline.providers.registry import Providers
from towline.sealing import Opener
from towline.ssh.client import SshClient

_ELSEWHERE_SOON = timedelta(seconds=1)


class RunTaskActivity:
    """`run_task`, bound to a worker's providers and SSH client."""

    def __init__(self, providers: Providers, ssh: SshClient, opener: Opener) -> None:
        self._providers = providers
        self._ssh = ssh
        self._opener = opener

    @activity.defn(name=Activity.RUN_TASK)
    async def run_task(self, request: RunTaskInput) -> RunTaskResult:
        """See the next attempt to its end. Returns after a success; every other end is a failure whose details carry
        the account. Never kills: whatever ends this activity, the attempt on the node goes on."""
        earlier = _last_heartbeat()
        known = merge(request.ledger, earlier.ledger if earlier else None)
        progress = Progress(known.last_attempt + 1, known)
        if earlier:
            progress.unreachable_since = earlier.unreachable_since
            progress.started_at = earlier.started_at if earlier.attempt == progress.attempt else None
        async with beating(lambda: _heartbeat(request, progress)) as report:
            provider = self._providers.get(request.nodes[0].provider)
            attempting = Attempting(request, self._ssh, provider, self._opener.open, progress, report)
            try:
                progress.ledger, lost = await until_worker_stops(attempting.run())
            except asyncio.CancelledError:
                if _worker_stops():
                    raise _worker_stopping(progress.ledger) from None
                raise
            except WorkerStopping:
                raise _worker_stopping(progress.ledger) from None
            except (AttemptSuperseded, TaskClosed) as error:
                raise _failure(Failure.SUPERSEDED, str(error), progress.ledger) from None
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                raise failure(error, to_json(RunTaskFailure(progress.ledger))) from error
        return _verdict(request, progress.ledger, lost)


def _verdict(request: RunTaskInput, ledger: Ledger, lost: bool) -> RunTaskResult:
    """Return for a success; raise what Temporal's RetryPolicy, or the workflow, is to act on."""
    last = ledger.records[-1]
    if last.status == AttemptStatus.SUCCEEDED:
        return RunTaskResult(ledger)
    lost_ids = [node.node_id for node in request.nodes] if lost else []
    final = ledger.failures > request.max_restarts or is_full(ledger)
    raise _failure(_failure_type(last), last.reason, ledger, lost_ids, non_retryable=final)


def _failure_type(last: AttemptRecord) -> str:
    if last.cause == Cause.EXIT_CODE_RULE:
        return Failure.EXIT_CODE_RULE
    if last.status in (AttemptStatus.FAILED, AttemptStatus.FAILED_SETUP):
        return last.status
    return Failure.NODE_LOST


def _failure(
    kind: str, message: str, ledger: Ledger, lost: list[str] | None = None, non_retryable: bool = False
) -> ApplicationError:
    details = to_json(RunTaskFailure(ledger, lost or []))
    return ApplicationError(message, details, type=kind, non_retryable=non_retryable)


def _worker_stopping(ledger: Ledger) -> ApplicationError:
    """Retryable, and soon, whatever the backoff between restarts has grown to."""
    return ApplicationError(
        "this worker stops; the task runs on",
        to_json(RunTaskFailure(ledger)),
        type=Failure.WORKER_SHUTDOWN,
        next_retry_delay=_ELSEWHERE_SOON,
    )


def _worker_stops() -> bool:
    details = activity.cancellation_details()
    return bool(details and details.worker_shutdown)


def _last_heartbeat() -> RunTaskHeartbeat | None:
    details: Any = activity.info().heartbeat_details
    return from_json(RunTaskHeartbeat, details[0]) if details else None


def _heartbeat(request: RunTaskInput, progress: Progress) -> dict[str, Any]:
    return to_json(
        RunTaskHeartbeat(
            phase=progress.phase,
            attempt=progress.attempt,
            ledger=progress.ledger,
            nodes=[node.node_id for node in request.nodes],
            started_at=progress.started_at,
            unreachable_since=progress.unreachable_since,
            note=progress.note[:300],
        )
    )
