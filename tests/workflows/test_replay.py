"""Old jobs survive new code: every recorded history replays, and what replaying cannot see is looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.support.scripted import FAIL, LOST, OK, Script
from tests.workflows.conftest import Jobs
from tests.workflows.test_managed_job import job
from towline.contract import NON_RETRYABLE, Activity
from workflows.managed_job import ManagedJob

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))


def test_there_are_histories_to_replay() -> None:
    assert len(HISTORIES) >= 12


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    await Replayer(workflows=[ManagedJob]).replay_workflow(history)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_history_cut_in_the_middle_replays_too(path: Path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    started = [
        number
        for number, event in enumerate(history.events)
        if event.HasField("workflow_task_started_event_attributes")
    ]
    for number in started:
        cut = WorkflowHistory(path.stem, history.events[: number + 1])
        await Replayer(workflows=[ManagedJob]).replay_workflow(cut)


@pytest.mark.parametrize("budget", [0, 1, 3])
async def test_run_tasks_retry_policy_is_the_budget_and_excludes_every_failure_but_the_users(
    dev_jobs: Jobs, budget: int
) -> None:
    script = Script({0: [LOST, FAIL, OK] if budget else [LOST, OK]})
    async with dev_jobs.worker(script):
        handle = await dev_jobs.start(job(budget))
        await handle.result()
        history = await handle.fetch_history()
    policies = [
        event.activity_task_scheduled_event_attributes.retry_policy
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == Activity.RUN_TASK
    ]
    assert [policy.maximum_attempts for policy in policies] == [1 + budget, 1 + budget]
    for policy in policies:
        assert list(policy.non_retryable_error_types) == list(NON_RETRYABLE)
        assert not {"FAILED", "FAILED_SETUP", "WORKER_SHUTDOWN"} & set(policy.non_retryable_error_types)


def test_a_workflow_loads_neither_ssh_nor_yaml() -> None:
    code = "import sys, workflows.managed_job; print({'asyncssh', 'yaml', 'psutil', 'click'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
