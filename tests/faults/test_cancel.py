"""Cancel means gone, in every phase: within 10 s, plus the grace of the task, plus the cloud's own time."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests.support.cloud import Cloud
from tests.support.openssh import OpenSsh
from tests.support.oracles import Diary, processes_of_job, says
from tests.support.system import System, own_seconds, pool_of, until
from towline.status import Status

WITHIN_S = 10.0
GRACE_S = 3.0  # as `System.environment` has it


async def cancelled(system: System, job_id: str, limit_s: float = WITHIN_S + GRACE_S) -> float:
    """Cancel, and wait until the execution has ended Canceled; returns how long that took."""
    began = time.monotonic()
    await system.jobs.cancel(job_id)
    document = await system.ended(job_id, limit_s)
    assert document["status"] == Status.CANCELLED
    described = await system.client.get_workflow_handle(job_id).describe()
    assert described.status is WorkflowExecutionStatus.CANCELED
    return time.monotonic() - began


@pytest.mark.timeout(240)
async def test_a_create_that_takes_a_minute_may_be_cancelled_at_any_second_of_it(clouded: System, cloud: Cloud) -> None:
    cloud.turns(create_s=60, list_lag_s=5)
    await clouded.worker()

    async def one(after_s: float) -> None:
        job_id = await clouded.submit({"run": "sleep 600"}, {"run": "true"})
        await asyncio.sleep(after_s)  # the fault itself
        await cancelled(clouded, job_id)
        assert processes_of_job(await clouded.jobs.log_key(job_id)) == []

    await asyncio.gather(*(one(after_s) for after_s in (0, 1, 5, 30, 59, 61)))
    assert cloud.living() == []
    assert cloud.double_nodes() == []
    assert clouded.held_nodes() == []


@pytest.mark.parametrize("trouble", ["creates_fail", "no_capacity", "deletes_fail", "deletes_lie"])
async def test_a_cloud_in_trouble_keeps_a_cancel_only_as_long_as_its_deletes_do(
    clouded: System, cloud: Cloud, diary: Diary, trouble: str
) -> None:
    cloud.turns(**{trouble: {"creates_fail": 1000, "no_capacity": True}.get(trouble, 2)})
    await clouded.worker()
    job_id = await clouded.submit({"run": diary.task})
    if trouble.startswith("deletes"):
        await diary.started()
    else:
        await clouded.shows(job_id, lambda each: "waiting for nodes" in each["reason"], "it says what it waits for")
    await cancelled(clouded, job_id, 30)
    assert cloud.living() == []
    assert clouded.held_nodes() == []
    assert processes_of_job(await clouded.jobs.log_key(job_id)) == []


STUBBORN = """
trap 'echo bye; exit 0' TERM
setsid sleep {0} &
(setsid sh -c 'trap "" TERM; sleep {0}; sleep {0}' &)
nohup sleep {0} &
python3 -c 'import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep({0})
    os._exit(0)
os.wait()' {0}
echo ready
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("phase", ["setup", "run"])
async def test_the_whole_tree_is_gone_and_its_last_words_are_kept(clouded: System, cloud: Cloud, phase: str) -> None:
    await clouded.worker()
    seconds = own_seconds()
    job_id = await clouded.submit({"run": "true", phase: STUBBORN.format(seconds)}, {"run": "true"})
    await says(clouded, job_id, b"ready")
    await clouded.jobs.cancel(job_id)
    await cancelled(clouded, job_id)  # the second time: it changes nothing
    document = await clouded.jobs.status(job_id)
    assert [task["status"] for task in document["tasks"]] == [Status.CANCELLED, Status.CANCELLED]
    assert document["tasks"][0]["attempts"][-1]["cause"] == "cancelled"
    assert b"bye" in await clouded.log(job_id)
    assert cloud.living() == []
    assert processes_of_job(await clouded.jobs.log_key(job_id)) == []
    assert clouded.processes_of(seconds) == []
    again = await clouded.cli("cancel", job_id)
    assert (again.code, "already ended" in again.err) == (0, True)
    assert (await clouded.cli("logs", job_id)).code == 103


async def test_a_cancel_between_restarts_and_between_tasks_starts_nothing(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    await clouded.worker()
    budget = {"job_recovery": {"max_restarts_on_errors": 50}}
    failing = [await clouded.submit({"run": f"{diary.task}\nexit 1", "resources": budget}) for _ in range(5)]
    walking = [await clouded.submit(*[{"run": "true"}] * 30) for _ in range(5)]
    diary.let_go()
    await until(lambda: len(diary.lines("start 2")) >= 5, "each was restarted")
    await asyncio.gather(*(cancelled(clouded, job_id, 40) for job_id in [*failing, *walking]))
    starts = len(diary.lines("start"))
    assert cloud.living() == []
    asked = cloud.asked()
    await asyncio.sleep(3)  # so long something might still start
    assert len(diary.lines("start")) == starts
    assert cloud.asked() == asked
    for job_id in [*failing, *walking]:
        assert processes_of_job(await clouded.jobs.log_key(job_id)) == []


async def test_a_cancel_while_no_worker_lives_is_carried_out_by_the_next(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    import signal

    worker = await clouded.worker()
    job_id = await clouded.submit({"run": diary.task})
    await diary.started()
    worker.send(signal.SIGKILL)
    await clouded.jobs.cancel(job_id)
    await clouded.worker()
    assert (await clouded.ended(job_id))["status"] == Status.CANCELLED
    assert cloud.living() == []
    assert processes_of_job(await clouded.jobs.log_key(job_id)) == []


@pytest.mark.skipif(shutil.which("sudo") is None or os.geteuid() != 0, reason="there is no sudo, or it would ask")
async def test_what_runs_under_sudo_on_a_machine_of_ones_own_is_gone_too(
    idle: System, openssh: OpenSsh, tmp_path: Path
) -> None:
    """Such a process has neither the environment nor the user of the task; its parent has."""
    pool_of(idle, openssh)
    await idle.worker()
    seconds = own_seconds()
    run = f"sudo -n -u nobody sleep {seconds} & sudo -n -u nobody setsid sleep {seconds} & echo ready; wait"
    job_id = await idle.submit({"run": run, "resources": {"infra": "ssh/lab"}})
    await says(idle, job_id, b"ready")
    await until(lambda: len(idle.processes_of(f"sleep {seconds}")) >= 4, "both run")
    await cancelled(idle, job_id)
    assert idle.processes_of(f"sleep {seconds}") == []
