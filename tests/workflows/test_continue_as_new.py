"""Long histories: the job continues as new between attempts and between tasks, and carries everything."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from tests.support.scripted import FAIL, HANG, OK, Ends, Script
from tests.workflows.conftest import Jobs
from tests.workflows.test_managed_job import job
from towline.contract import QUERY_STATUS
from towline.status import Status


async def runs_of(jobs: Jobs, job_id: str) -> int:
    """How many executions the chain has."""
    return len([each async for each in jobs.client.list_workflows(f'WorkflowId="{job_id}"')])


async def test_attempts_budget_and_recoveries_are_carried_over_many_histories(short_history_jobs: Jobs) -> None:
    ends = [Ends("reboot", slow=True)] * 30 + [FAIL] + [Ends("lost", slow=True)] * 10 + [FAIL, FAIL]
    script = Script({0: ends})
    async with short_history_jobs.worker(script):
        handle = await short_history_jobs.start(job(2, 0), job_id="long")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        document = await short_history_jobs.client.get_workflow_handle("long").query(QUERY_STATUS)
    assert script.starts == [(0, number) for number in range(1, 44)]
    task = document["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.FAILED, 2, 40)
    assert [each["attempt"] for each in task["attempts"]] == list(range(1, 44))
    assert await runs_of(short_history_jobs, "long") > 3
    assert script.alive == {}
    assert len(script.created) == 11


async def test_a_job_of_many_tasks_continues_as_new_between_them(short_history_jobs: Jobs) -> None:
    script = Script()
    async with short_history_jobs.worker(script):
        handle = await short_history_jobs.start(job(*[0] * 20), job_id="wide")
        await handle.result()
        document = await short_history_jobs.client.get_workflow_handle("wide").query(QUERY_STATUS)
    assert script.starts == [(index, 1) for index in range(20)]
    assert {task["status"] for task in document["tasks"]} == {Status.SUCCEEDED}
    assert await runs_of(short_history_jobs, "wide") > 3


async def test_a_cancel_at_the_border_is_not_lost(short_history_jobs: Jobs) -> None:
    async def one(number: int) -> Script:
        script = scripts[f"border-{number}"]
        handle = await short_history_jobs.start(job(0), job_id=f"border-{number}")
        while len(script.starts) < 2 + number:
            await asyncio.sleep(0.005)
        await short_history_jobs.client.get_workflow_handle(f"border-{number}").cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        return script

    scripts = {f"border-{n}": Script({0: [Ends("reboot", slow=True)] * 12 + [HANG, OK]}) for n in range(10)}
    async with short_history_jobs.worker(Script(), scripts):
        ended = await asyncio.gather(*(one(number) for number in range(10)))
        for number in range(10):
            described = await short_history_jobs.client.get_workflow_handle(f"border-{number}").describe()
            assert described.status is WorkflowExecutionStatus.CANCELED
    assert [script.alive for script in ended] == [{}] * 10
