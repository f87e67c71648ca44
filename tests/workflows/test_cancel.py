"""Cancelling: in each phase, by chance, and twice. Nothing is left alive and no cancel is lost."""

from __future__ import annotations

import asyncio
import random

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from tests.support.scale import scaled
from tests.support.scripted import FAIL, HANG, LOST, OK, Script
from tests.workflows.conftest import Jobs
from tests.workflows.test_managed_job import job
from towline.contract import QUERY_STATUS
from towline.status import Status


@pytest.mark.parametrize("phase", ["provision", "run_task"])
async def test_a_cancel_in_this_phase_releases_everything_and_ends_canceled(dev_jobs: Jobs, phase: str) -> None:
    script = Script({0: [HANG]}, provision_hangs=phase == "provision")
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(1, 0))
        await asyncio.wait_for(script.event(phase).wait(), 10)
        await handle.cancel()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        document = await handle.query(QUERY_STATUS)
        assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert [task["status"] for task in document["tasks"]] == [Status.CANCELLED, Status.CANCELLED]
    assert script.releases
    assert script.alive == {}


async def test_a_cancelled_attempt_is_stopped_before_its_node_is_released(dev_jobs: Jobs) -> None:
    script = Script({0: [FAIL, HANG]})
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(1))
        while len(script.starts) < 2:
            await asyncio.sleep(0.01)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        document = await handle.query(QUERY_STATUS)
    assert len(script.stops) == 1
    assert document["tasks"][0]["attempts"][-1]["cause"] == "cancelled"


async def test_no_cancel_of_hundreds_at_random_moments_is_lost(dev_jobs: Jobs) -> None:
    dice = random.Random(20260101)
    scripts_ends = [[OK], [FAIL, OK], [LOST, OK], [HANG], [FAIL, HANG]]

    async def one(job_id: str, script: Script) -> None:
        handle = await dev_jobs.start(job(1, 0), job_id=job_id)
        await asyncio.sleep(dice.random() * 0.4)
        await handle.cancel()
        try:
            await handle.result()
            ended = WorkflowExecutionStatus.COMPLETED
        except WorkflowFailureError as error:
            assert isinstance(error.cause, CancelledError), repr(error.cause)
            ended = WorkflowExecutionStatus.CANCELED
        document = await handle.query(QUERY_STATUS)
        if document:
            statuses = {task["status"] for task in document["tasks"]}
            assert statuses <= {Status.SUCCEEDED, Status.CANCELLED}, document
            assert (ended is WorkflowExecutionStatus.COMPLETED) == (statuses == {Status.SUCCEEDED}), document
        assert script.alive == {}

    for batch in range(scaled(some=6, full=20)):
        scripts = {f"random-{batch}-{number}": Script({0: list(dice.choice(scripts_ends))}) for number in range(25)}
        async with dev_jobs.worker(Script(), scripts, max_cached_workflows=dice.choice([5, 1000])):
            await asyncio.gather(*(one(job_id, script) for job_id, script in scripts.items()))


async def test_a_cancel_on_a_node_that_cannot_be_reached_waits_for_neither_its_stop_nor_its_logs(
    dev_jobs: Jobs,
) -> None:
    script = Script({0: [HANG]}, stop_fails=True, tail_hangs=True)
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(0))
        await asyncio.wait_for(script.event("run_task").wait(), 10)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 10)
    assert script.alive == {}


async def test_a_cancel_while_nodes_are_given_back_keeps_the_success_and_starts_nothing_more(dev_jobs: Jobs) -> None:
    script = Script(release_failures=2)
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(0, 0))
        await asyncio.wait_for(script.event("release").wait(), 10)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        document = await handle.query(QUERY_STATUS)
    assert [task["status"] for task in document["tasks"]] == [Status.SUCCEEDED, Status.CANCELLED]
    assert script.starts == [(0, 1)]
    assert script.alive == {}


async def test_a_cancel_in_the_pause_before_a_recovery_ends_the_job_at_once(dev_jobs: Jobs) -> None:
    script = Script({0: [LOST] * 5})
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(0))
        while len(script.starts) < 3:
            await asyncio.sleep(0.01)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await asyncio.wait_for(handle.result(), 10)
        assert isinstance(caught.value.cause, CancelledError)
    assert len(script.starts) == 3
    assert script.alive == {}


async def test_a_provision_that_fails_while_it_is_cancelled_is_a_cancel(dev_jobs: Jobs) -> None:
    script = Script(provision_fails_when_cancelled=True)
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(0))
        await script.event("provision").wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert isinstance(caught.value.cause, CancelledError)
    assert script.starts == []
