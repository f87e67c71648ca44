"""The workflow: budgets, recoveries, order of tasks, bad input. Activities are scripted, Temporal is real,
time is skipped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from tests.support.scripted import FAIL, FAIL_SETUP, LOST, OK, Ends, Script
from tests.workflows.conftest import Jobs
from towline.contract import QUERY_STATUS, Failure, WorkerSettings
from towline.status import Status


def job(*budgets: int, **extra: Any) -> dict[str, Any]:
    """A job of one task per restart budget."""
    tasks = [
        {"run": "true", "resources": {"job_recovery": {"max_restarts_on_errors": budget, **extra}}}
        for budget in budgets
    ]
    return {"name": "job", "tasks": tasks}


async def outcome(jobs: Jobs, script: Script, *arguments: Any) -> tuple[dict[str, Any], ApplicationError | None]:
    """The final status document, and the failure of the execution if it failed."""
    async with jobs.worker(script):
        handle = await jobs.start(*arguments)
        failure = None
        try:
            await handle.result()
        except WorkflowFailureError as error:
            assert isinstance(error.cause, ApplicationError), repr(error.cause)
            failure = error.cause
        return await handle.query(QUERY_STATUS), failure


async def test_the_pipeline_of_the_readme_restarts_once_fails_and_never_starts_its_second_task(
    jobs: Jobs,
) -> None:
    script = Script({0: [FAIL, FAIL]})
    document, failure = await outcome(jobs, script, job(1, 0))
    assert failure is not None
    assert failure.type == Status.FAILED
    assert script.starts == [(0, 1), (0, 2)]
    assert [task["status"] for task in document["tasks"]] == [Status.FAILED, Status.CANCELLED]
    assert document["tasks"][0]["restarts"] == 1
    assert document["tasks"][0]["reason"] == "exit code 1 after 1 restart"
    assert document["tasks"][0]["exit_code"] == 1
    assert [each["attempt"] for each in document["tasks"][0]["attempts"]] == [1, 2]
    assert script.alive == {}


async def test_the_retry_policy_restarts_and_each_call_gets_the_rest_of_the_budget(jobs: Jobs) -> None:
    script = Script({0: [FAIL, LOST, FAIL, OK]})
    document, failure = await outcome(jobs, script, job(3))
    assert failure is None
    assert script.starts == [(0, number) for number in (1, 2, 3, 4)]
    assert [request.ledger.failures for request in script.run_inputs] == [0, 1]
    assert (document["tasks"][0]["restarts"], document["tasks"][0]["recoveries"]) == (2, 1)


@pytest.mark.parametrize("budget", [0, 1, 3])
async def test_commands_start_at_most_once_more_than_the_budget(jobs: Jobs, budget: int) -> None:
    script = Script({0: [FAIL] * 9})
    document, _ = await outcome(jobs, script, job(budget))
    assert len(script.starts) == budget + 1
    assert document["status"] == Status.FAILED


@pytest.mark.parametrize("kind", ["shutdown", "core_shutdown"])
@pytest.mark.parametrize("budget", [0, 1])
async def test_workers_that_stop_never_spend_the_budget(jobs: Jobs, kind: str, budget: int) -> None:
    script = Script({0: [Ends(kind)] * 4 + [FAIL] * budget + [OK]})
    document, failure = await outcome(jobs, script, job(budget))
    assert failure is None
    assert script.starts == [(0, number) for number in range(1, budget + 2)]
    assert document["tasks"][0]["restarts"] == budget


async def test_a_failed_setup_restarts_like_a_failed_run(jobs: Jobs) -> None:
    script = Script({0: [FAIL_SETUP, FAIL_SETUP]})
    document, failure = await outcome(jobs, script, job(1))
    assert failure is not None
    assert failure.type == Status.FAILED_SETUP
    assert document["tasks"][0]["attempts"][0]["cause"] == "setup"


async def test_five_preemptions_and_one_failure_with_a_budget_of_one_succeed(jobs: Jobs) -> None:
    script = Script({0: [Ends("preempted")] * 3 + [FAIL] + [Ends("preempted")] * 2 + [OK]})
    document, failure = await outcome(jobs, script, job(1))
    assert failure is None
    task = document["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 1, 5)
    assert len(script.created) == 6
    assert script.alive == {}


async def test_a_reboot_and_an_exit_code_rule_recover_on_the_same_node(jobs: Jobs) -> None:
    script = Script({0: [Ends("reboot"), Ends("rule", 42), OK]})
    document, _ = await outcome(jobs, script, job(0))
    assert document["tasks"][0]["recoveries"] == 2
    assert len(script.created) == 1


async def test_restart_nodes_replace_gets_a_new_node_for_each_restart(jobs: Jobs) -> None:
    script = Script({0: [FAIL, FAIL, OK]})
    document, failure = await outcome(jobs, script, job(2, restart_nodes="replace"))
    assert failure is None
    assert len(script.created) == 3
    assert document["tasks"][0]["restarts"] == 2


async def test_no_recovery_ends_the_task_at_the_first_loss(jobs: Jobs) -> None:
    script = Script({0: [LOST]})
    _, failure = await outcome(jobs, script, job(0, strategy="NO_RECOVERY"))
    assert failure is not None
    assert failure.type == Status.FAILED_NO_RESOURCE


async def test_tasks_run_in_order_and_each_one_gives_its_nodes_back_before_the_next_begins(
    jobs: Jobs,
) -> None:
    script = Script({1: [FAIL, OK]})
    document, failure = await outcome(jobs, script, job(0, 1, 0))
    assert failure is None
    assert script.starts == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert document["status"] == Status.SUCCEEDED
    assert [request.task_index for request in script.releases] == [0, 1, 2]


async def test_waiting_for_capacity_goes_on_until_there_is_some(dev_jobs: Jobs) -> None:
    none = [ApplicationError("no capacity", type=Failure.NO_CAPACITY) for _ in range(2)]
    document, failure = await outcome(dev_jobs, Script(provision_errors=none), job(0))
    assert failure is None
    assert document["status"] == Status.SUCCEEDED


@pytest.mark.parametrize("kind", [Failure.FAILED_PRECHECKS, Failure.FAILED_NO_RESOURCE, Failure.FAILED_CONTROLLER])
async def test_a_provision_that_can_never_succeed_ends_the_job_with_its_reason(jobs: Jobs, kind: str) -> None:
    script = Script(provision_errors=[ApplicationError("no offer has 8 H100", type=kind, non_retryable=True)])
    document, failure = await outcome(jobs, script, job(0, 0))
    assert failure is not None
    assert failure.type == kind
    assert "no offer has 8 H100" in failure.message
    assert script.starts == []
    assert document["tasks"][1]["status"] == Status.CANCELLED


async def test_a_bug_in_run_task_is_called_again_and_never_counted(jobs: Jobs) -> None:
    script = Script({0: [Ends("bug"), OK]})
    document, failure = await outcome(jobs, script, job(0))
    assert failure is None
    assert document["tasks"][0]["restarts"] == 0


async def test_release_is_retried_until_it_is_confirmed(jobs: Jobs) -> None:
    script = Script(release_failures=5)
    _, failure = await outcome(jobs, script, job(0))
    assert failure is None
    assert len(script.releases) == 6
    assert script.alive == {}


async def test_logs_that_never_come_to_an_end_hold_nothing_up(jobs: Jobs) -> None:
    script = Script(tail_hangs=True, settings=WorkerSettings(search_attributes=False, drain_limit_s=0.1))
    document, failure = await outcome(jobs, script, job(0))
    assert failure is None
    assert document["status"] == Status.SUCCEEDED
    assert script.alive == {}


async def test_a_tail_that_fails_for_ever_changes_no_outcome(jobs: Jobs) -> None:
    script = Script(tail_fails=True, settings=WorkerSettings(search_attributes=False, drain_limit_s=0.1))
    document, failure = await outcome(jobs, script, job(0))
    assert failure is None
    assert document["status"] == Status.SUCCEEDED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "tasks"),
        (({},), "tasks"),
        (([],), "mapping"),
        ((None,), "mapping"),
        (("text",), "mapping"),
        ((7,), "mapping"),
        (({"name": "x", "tasks": []},), "tasks"),
        (({"name": "x", "tasks": [{"run": 7}]},), "tasks[0].run"),
        (({"name": "x", "tasks": [{"runn": "true"}]},), "did you mean run"),
        (({"name": "x", "tasks": [{"run": "true"}], "extra": 1},), "extra"),
        (({"name": "x", "tasks": [{"run": "true"}]}, "second"), "second argument"),
    ],
)
async def test_bad_input_ends_the_execution_at_once_and_says_why(
    jobs: Jobs, arguments: tuple[Any, ...], words: str
) -> None:
    script = Script()
    async with jobs.worker(script):
        handle = await jobs.start(*arguments)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result(rpc_timeout=timedelta(seconds=20))
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == Status.FAILED_PRECHECKS
    assert words in cause.message or words == "mapping"
    assert script.created == []
