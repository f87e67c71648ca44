"""Reading how a call of `run_task` ended, from the exception that Temporal raises in the workflow. Pure."""

from __future__ import annotations

from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError

from towline.contract import Failure, Ledger, RunTaskFailure, RunTaskHeartbeat, RunTaskResult, from_json
from towline.decision import INTERRUPTED, SUCCEEDED, RunEnd

_OURS = frozenset(value for name, value in vars(Failure).items() if name.isupper())
_ENGINES_OWN = frozenset({"WorkerShutdown", "PayloadsTooLarge", "CancelledError"})


def of_result(result: Any) -> tuple[RunEnd, Ledger | None]:
    """The end and the account in the result of `run_task`."""
    done = from_json(RunTaskResult, result)
    if done is None:
        return RunEnd(Failure.FAILED_CONTROLLER, "run_task returned what is not its result"), None
    return RunEnd(SUCCEEDED), done.ledger


def of_error(error: ActivityError) -> tuple[RunEnd, Ledger | None]:
    """The end and the account in the failure of `run_task`; the account is None where the failure carries none."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return _of_application_error(cause)
    if isinstance(cause, TimeoutError):
        beat = from_json(RunTaskHeartbeat, _first(cause.last_heartbeat_details))
        return RunEnd(INTERRUPTED, "its worker went silent"), beat.ledger if beat else None
    if isinstance(cause, CancelledError):
        return RunEnd(INTERRUPTED, "its activity was cancelled from outside"), None
    return RunEnd(Failure.FAILED_CONTROLLER, f"run_task ended with {type(cause).__name__}: {cause}"), None


def _of_application_error(cause: ApplicationError) -> tuple[RunEnd, Ledger | None]:
    failure = from_json(RunTaskFailure, _first(cause.details))
    ledger = failure.ledger if failure else None
    if cause.type is not None and cause.type in _OURS:
        return RunEnd(cause.type, cause.message, failure.lost if failure else []), ledger
    if cause.type in _ENGINES_OWN or not cause.non_retryable:
        return RunEnd(INTERRUPTED, f"its activity attempt ended with {cause.type}"), ledger
    return RunEnd(Failure.FAILED_CONTROLLER, f"run_task failed with {cause.type}: {cause.message}"), ledger


def _first(details: Any) -> Any:
    return details[0] if details else None
