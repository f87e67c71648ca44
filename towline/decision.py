"""What next? The one place that decides between the end, a restart and a recovery.

`decide` is a pure function: no clock, no Temporal, no I/O. `tests/unit/test_decision.py` walks every way an attempt can
end through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from towline.contract import Cause, Failure, Ledger
from towline.status import Status


@dataclass(frozen=True)
class Policy:
    """What the user wants done when attempts end. `max_restarts` counts further attempts after the user's failures."""

    max_restarts: int = 0
    strategy: str = "EAGER_NEXT_REGION"
    restart_nodes: str = "keep"


@dataclass(frozen=True)
class RunEnd:
    """How a call of `run_task` ended. `kind` is a `contract.Failure` type, SUCCEEDED, or INTERRUPTED when the call
    ended though the task did not (worker lost or stopped, heartbeat missed)."""

    kind: str
    message: str = ""
    lost: list[str] = field(default_factory=list)


SUCCEEDED = "SUCCEEDED"
INTERRUPTED = "INTERRUPTED"


class Step(StrEnum):
    """What the workflow does next."""

    FINISH = "finish"  # the task ends with `status`
    RESUME = "resume"  # call run_task again on the same nodes: it re-attaches, or starts the next attempt
    RECOVER = "recover"  # replace the nodes in `lost`, then run_task
    REPLACE = "replace"  # a restart on new nodes: give all back, provision, then run_task


@dataclass(frozen=True)
class Decision:
    """The next step, and the words for it."""

    step: Step
    reason: str = ""
    status: Status | None = None
    lost: list[str] = field(default_factory=list)


_FINAL_FAILURES = {
    Failure.FAILED_PRECHECKS: Status.FAILED_PRECHECKS,
    Failure.FAILED_NO_RESOURCE: Status.FAILED_NO_RESOURCE,
}
_LETS_GO = frozenset(
    {
        INTERRUPTED,
        Failure.WORKER_SHUTDOWN,
        Failure.SUPERSEDED,
        Failure.NO_CAPACITY,
        Failure.PROVIDER_UNAVAILABLE,
        Failure.SECRET_UNREADABLE,
    }
)


def decide(policy: Policy, ledger: Ledger, end: RunEnd) -> Decision:
    """The next step after `run_task` ended in `end` with the account `ledger`."""
    if end.kind == SUCCEEDED:
        return Decision(Step.FINISH, _with_restarts("", policy, ledger), Status.SUCCEEDED)
    if end.kind in (Failure.FAILED, Failure.FAILED_SETUP):
        return _after_user_failure(policy, ledger, end)
    if end.kind in (Failure.NODE_LOST, Failure.EXIT_CODE_RULE):
        return _after_infrastructure_failure(policy, end)
    if end.kind in _LETS_GO:
        return _after_interruption(policy, ledger, end)
    if end.kind == Failure.CANCELLED:
        return Decision(Step.FINISH, end.message, Status.CANCELLED)
    status = _FINAL_FAILURES.get(end.kind, Status.FAILED_CONTROLLER)
    return Decision(Step.FINISH, end.message, status)


def restarts_used(policy: Policy, ledger: Ledger) -> int:
    """Restarts paid from the budget so far: one for each failure that had, or will have, a further attempt."""
    return min(ledger.failures, policy.max_restarts)


def restarts_left(policy: Policy, ledger: Ledger) -> int:
    """How many more failures of the user's code may be followed by a further attempt."""
    return max(0, policy.max_restarts - ledger.failures)


def _after_user_failure(policy: Policy, ledger: Ledger, end: RunEnd) -> Decision:
    if ledger.failures > policy.max_restarts:
        return Decision(Step.FINISH, _with_restarts(end.message, policy, ledger), Status(end.kind))
    reason = f"restart {ledger.failures}/{policy.max_restarts} after {end.message}"
    return Decision(Step.REPLACE if policy.restart_nodes == "replace" else Step.RESUME, reason)


def _after_infrastructure_failure(policy: Policy, end: RunEnd) -> Decision:
    if policy.strategy == "NO_RECOVERY":
        reason = f"{end.message}; job_recovery is NO_RECOVERY"
        return Decision(Step.FINISH, reason, Status.FAILED_NO_RESOURCE, end.lost)
    return Decision(Step.RECOVER, end.message, lost=end.lost)


def _after_interruption(policy: Policy, ledger: Ledger, end: RunEnd) -> Decision:
    """The call ended without a verdict of its own; the account may still say that the budget is spent."""
    last = ledger.records[-1] if ledger.records else None
    if last and last.status == Status.SUCCEEDED:
        return Decision(Step.FINISH, _with_restarts("", policy, ledger), Status.SUCCEEDED)
    if last and last.cause in (Cause.USER, Cause.SETUP) and ledger.failures > policy.max_restarts:
        return Decision(Step.FINISH, _with_restarts(last.reason, policy, ledger), Status(last.status))
    return Decision(Step.RESUME, end.message)


def _with_restarts(reason: str, policy: Policy, ledger: Ledger) -> str:
    used = restarts_used(policy, ledger)
    words = f"after {used} restart{'' if used == 1 else 's'}" if used else ""
    return " ".join(part for part in (reason, words) if part)
