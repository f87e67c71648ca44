"""Jobs that nobody cleans up after: terminated, purged, forgotten by every worker."""

from __future__ import annotations

import asyncio
import signal

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from tests.support.cloud import Cloud
from tests.support.oracles import Diary, processes_of_job
from tests.support.system import System, until, with_budget
from towline.status import Status

SWEPT_WITHIN_S = 120


@pytest.mark.parametrize("how", ["terminated", "purged"])
async def test_the_nodes_of_a_job_that_was_cut_off_are_swept(
    clouded: System, cloud: Cloud, diary: Diary, how: str
) -> None:
    await clouded.worker()
    job_id = await clouded.submit({"run": diary.task})
    await diary.started()
    key = await clouded.jobs.log_key(job_id)
    if how == "terminated":
        await clouded.client.get_workflow_handle(job_id).terminate("by an operator")
    else:
        execution = WorkflowExecution(workflow_id=job_id)
        request = DeleteWorkflowExecutionRequest(namespace="default", workflow_execution=execution)
        await clouded.client.workflow_service.delete_workflow_execution(request)
    await until(lambda: not cloud.living(), "the sweep ends the node", SWEPT_WITHIN_S)
    await until(lambda: processes_of_job(key) == [], "nothing runs any more")
    if how == "terminated":
        assert (await clouded.jobs.status(job_id))["status"] == Status.CANCELLED


async def test_deletes_that_fail_are_tried_again_by_the_sweep(clouded: System, cloud: Cloud, diary: Diary) -> None:
    await clouded.worker()
    job_id = await clouded.submit({"run": diary.task})
    await diary.started()
    cloud.turns(deletes_fail=2, deletes_lie=1, list_lag_s=5)
    await clouded.client.get_workflow_handle(job_id).terminate("by an operator")
    await until(lambda: not cloud.living(), "the sweep ends the node", SWEPT_WITHIN_S)


async def test_a_node_that_nobody_contacts_ends_with_its_lease_and_an_outage_within_it_kills_nothing(
    idle: System, diary: Diary
) -> None:
    idle.extra_environment["TOWLINE_NODE_LEASE"] = "12"
    worker = await idle.worker()
    job_id = await idle.submit(with_budget(0, run=diary.task))
    pid = await diary.started()
    await asyncio.sleep(14)  # a job that is watched lives longer than the lease
    worker.send(signal.SIGKILL)
    await asyncio.sleep(7)  # the outage
    worker = await idle.worker()
    await idle.shows(job_id, lambda each: each["status"] == Status.RUNNING, "the job runs")
    assert [line.split()[2] for line in diary.lines("start")] == [pid]
    worker.send(signal.SIGKILL)
    key = await idle.jobs.log_key(job_id)
    await until(lambda: processes_of_job(key) == [], "the lease has passed", 40)
