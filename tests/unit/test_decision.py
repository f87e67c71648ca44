"""Every way a call of `run_task` can end, walked through the decision."""

from __future__ import annotations

import pytest

from towline.contract import AttemptRecord, AttemptStatus, Cause, Failure, Ledger
from towline.decision import (
    INTERRUPTED,
    SUCCEEDED,
    Policy,
    RunEnd,
    Step,
    decide,
    restarts_left,
    restarts_used,
)
from towline.ledger import record
from towline.status import Status


def account(*causes: str) -> Ledger:
    """The ledger after attempts that ended by these causes; "ok" is a success."""
    ledger = Ledger()
    for number, cause in enumerate(causes, start=1):
        ledger = record(ledger, _attempt(number, cause))
    return ledger


def _attempt(number: int, cause: str) -> AttemptRecord:
    if cause == "ok":
        return AttemptRecord(number, AttemptStatus.SUCCEEDED, 0, Cause.USER)
    status = {Cause.USER: AttemptStatus.FAILED, Cause.SETUP: AttemptStatus.FAILED_SETUP}
    return AttemptRecord(number, status.get(cause, AttemptStatus.NODE_LOST), 1, cause, f"ended by {cause}")


USER, SETUP, LOST = Cause.USER, Cause.SETUP, Cause.NODE_LOST

TABLE = [
    # budget, causes of the attempts so far, how run_task ended, next step, status
    (0, ["ok"], SUCCEEDED, Step.FINISH, Status.SUCCEEDED),
    (0, [USER], Failure.FAILED, Step.FINISH, Status.FAILED),
    (0, [SETUP], Failure.FAILED_SETUP, Step.FINISH, Status.FAILED_SETUP),
    (1, [USER], Failure.FAILED, Step.RESUME, None),
    (1, [SETUP], Failure.FAILED_SETUP, Step.RESUME, None),
    (1, [USER, USER], Failure.FAILED, Step.FINISH, Status.FAILED),
    (1, [USER, SETUP], Failure.FAILED_SETUP, Step.FINISH, Status.FAILED_SETUP),
    (1, [USER, LOST], Failure.NODE_LOST, Step.RECOVER, None),
    (0, [LOST, LOST, LOST], Failure.NODE_LOST, Step.RECOVER, None),
    (1, [LOST, LOST, USER], Failure.FAILED, Step.RESUME, None),
    (1, [LOST, USER, LOST, USER], Failure.FAILED, Step.FINISH, Status.FAILED),
    (0, [Cause.EXIT_CODE_RULE], Failure.EXIT_CODE_RULE, Step.RECOVER, None),
    (0, [], INTERRUPTED, Step.RESUME, None),
    (0, [], Failure.WORKER_SHUTDOWN, Step.RESUME, None),
    (0, [], Failure.SUPERSEDED, Step.RESUME, None),
    (0, [USER], INTERRUPTED, Step.FINISH, Status.FAILED),
    (1, [USER], INTERRUPTED, Step.RESUME, None),
    (0, [SETUP], Failure.WORKER_SHUTDOWN, Step.FINISH, Status.FAILED_SETUP),
    (0, ["ok"], INTERRUPTED, Step.FINISH, Status.SUCCEEDED),
    (3, [], Failure.CANCELLED, Step.FINISH, Status.CANCELLED),
    (3, [], Failure.FAILED_PRECHECKS, Step.FINISH, Status.FAILED_PRECHECKS),
    (3, [], Failure.FAILED_NO_RESOURCE, Step.FINISH, Status.FAILED_NO_RESOURCE),
    (3, [], Failure.FAILED_CONTROLLER, Step.FINISH, Status.FAILED_CONTROLLER),
    (3, [], "NEVER_HEARD_OF", Step.FINISH, Status.FAILED_CONTROLLER),
    (3, [], Failure.NO_CAPACITY, Step.RESUME, None),
    (3, [], Failure.PROVIDER_UNAVAILABLE, Step.RESUME, None),
    (3, [], Failure.SECRET_UNREADABLE, Step.RESUME, None),
]


@pytest.mark.parametrize(("budget", "causes", "kind", "step", "status"), TABLE)
def test_each_end_leads_to_its_one_next_step(
    budget: int, causes: list[str], kind: str, step: Step, status: Status | None
) -> None:
    decision = decide(Policy(max_restarts=budget), account(*causes), RunEnd(kind, "why"))
    assert (decision.step, decision.status) == (step, status)


def test_the_table_names_every_failure_type() -> None:
    types = {value for name, value in vars(Failure).items() if name.isupper()}
    assert types <= {kind for _, _, kind, _, _ in TABLE}


def test_no_recovery_makes_the_first_loss_final() -> None:
    decision = decide(Policy(strategy="NO_RECOVERY"), account(LOST), RunEnd(Failure.NODE_LOST, "node n1 lost"))
    assert decision.status is Status.FAILED_NO_RESOURCE
    assert "NO_RECOVERY" in decision.reason


def test_restart_nodes_replace_asks_for_new_nodes_and_only_while_restarts_are_left() -> None:
    policy = Policy(max_restarts=1, restart_nodes="replace")
    assert decide(policy, account(USER), RunEnd(Failure.FAILED, "exit code 1")).step is Step.REPLACE
    assert decide(policy, account(USER, USER), RunEnd(Failure.FAILED, "exit code 1")).step is Step.FINISH


def test_the_reason_of_a_failure_says_how_many_restarts_it_had() -> None:
    decision = decide(Policy(max_restarts=1), account(USER, USER), RunEnd(Failure.FAILED, "exit code 1"))
    assert decision.reason == "exit code 1 after 1 restart"


@pytest.mark.parametrize("budget", range(6))
def test_a_task_that_always_fails_starts_once_more_than_its_budget(budget: int) -> None:
    policy, ledger, starts = Policy(max_restarts=budget), Ledger(), 0
    while True:
        starts += 1
        ledger = record(ledger, _attempt(starts, USER))
        if decide(policy, ledger, RunEnd(Failure.FAILED)).step is Step.FINISH:
            break
    assert starts == budget + 1
    assert restarts_used(policy, ledger) == budget


@pytest.mark.parametrize("losses", [1, 5, 50])
def test_losses_never_spend_the_budget(losses: int) -> None:
    policy, ledger = Policy(max_restarts=2), account(*[LOST] * losses)
    assert restarts_left(policy, ledger) == 2
    assert restarts_used(policy, ledger) == 0
