"""Jobs of hundreds of recoveries, hundreds of tasks, and a year of waiting: nothing is forgotten on the way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment

from tests.support.scale import scaled
from tests.support.scripted import FAIL, HANG, Ends, Script
from tests.workflows.conftest import Jobs
from tests.workflows.test_continue_as_new import runs_of
from tests.workflows.test_managed_job import job
from towline.contract import QUERY_STATUS, Failure
from towline.status import Status

RECOVERIES = scaled(some=60, full=500)
TASKS = scaled(some=60, full=300)
TOLD = 500  # attempts that the status document tells one by one
SLOWLY_LOST = Ends("lost", slow=True)
MOST_EVENTS = 1000


@pytest.mark.timeout(600)
async def test_a_task_of_hundreds_of_recoveries_forgets_neither_budget_nor_numbers(short_history_jobs: Jobs) -> None:
    """Two failures among them; of the attempts, the newest 500 are told one by one."""
    ends = [SLOWLY_LOST] * (RECOVERIES // 2) + [FAIL] + [SLOWLY_LOST] * (RECOVERIES // 2) + [FAIL]
    script = Script({0: ends})
    attempts = len(ends) + 1
    async with short_history_jobs.worker(script):
        handle = await short_history_jobs.start(job(2), job_id="many-recoveries")
        await handle.result()
        document = await short_history_jobs.client.get_workflow_handle("many-recoveries").query(QUERY_STATUS)
    assert script.starts == [(0, number) for number in range(1, attempts + 1)]
    task = document["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 2, RECOVERIES)
    assert [each["attempt"] for each in task["attempts"]] == list(range(max(1, attempts - TOLD + 1), attempts + 1))
    assert len(script.created) == RECOVERIES + 1
    assert script.alive == {}
    assert await runs_of(short_history_jobs, "many-recoveries") > RECOVERIES / 10
    last = await short_history_jobs.client.get_workflow_handle("many-recoveries").fetch_history()
    assert len(last.events) < MOST_EVENTS


@pytest.mark.timeout(600)
async def test_a_job_of_hundreds_of_tasks_walks_them_all_once(short_history_jobs: Jobs) -> None:
    script = Script()
    async with short_history_jobs.worker(script):
        handle = await short_history_jobs.start(job(*[0] * TASKS), job_id="many-tasks")
        await handle.result()
        document = await short_history_jobs.client.get_workflow_handle("many-tasks").query(QUERY_STATUS)
    assert script.starts == [(index, 1) for index in range(TASKS)]
    assert [task["status"] for task in document["tasks"]] == [Status.SUCCEEDED] * TASKS
    assert all(task["started_at"] and task["ended_at"] for task in document["tasks"])
    assert script.alive == {}


@pytest.mark.timeout(600)
async def test_hundreds_of_tasks_are_cancelled_in_the_middle_of_their_way(short_history_jobs: Jobs) -> None:
    script = Script({TASKS // 2: [HANG]})
    async with short_history_jobs.worker(script):
        handle = await short_history_jobs.start(job(*[0] * TASKS), job_id="half-way")
        while (TASKS // 2, 1) not in script.starts:
            await asyncio.sleep(0.02)
        await short_history_jobs.client.get_workflow_handle("half-way").cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        described = await short_history_jobs.client.get_workflow_handle("half-way").describe()
        assert described.status is WorkflowExecutionStatus.CANCELED
    assert script.starts == [(index, 1) for index in range(TASKS // 2 + 1)]
    assert script.alive == {}


async def test_a_job_that_waits_for_a_simulated_year_goes_on_as_if_it_were_a_minute(
    jobs: Jobs, environment: WorkflowEnvironment
) -> None:
    """It waits for capacity, a day at a time."""
    full = [
        ApplicationError("full", type=Failure.NO_CAPACITY, next_retry_delay=timedelta(hours=24)) for _ in range(365)
    ]
    script = Script({0: [FAIL]}, provision_errors=list(full))
    before = await environment.get_current_time()
    async with jobs.worker(script):
        handle = await jobs.start(job(1))
        await handle.result()
        document = await handle.query(QUERY_STATUS)
        history = await handle.fetch_history()
    passed = await environment.get_current_time() - before
    assert passed > timedelta(days=364)
    task = document["tasks"][0]
    assert (task["status"], task["restarts"]) == (Status.SUCCEEDED, 1)
    assert script.starts == [(0, 1), (0, 2)]
    assert len(history.events) < 60  # waiting costs no history
