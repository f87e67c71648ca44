"""Workers die, are deployed anew, freeze: one start per attempt, the budget untouched, every line once."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.oracles import Diary, assert_counted, log_grows, processes_of_job
from tests.support.system import System, until, with_budget
from towline.status import Status

STARTS = ("before-launch", "launch-on-its-way", "after-launch", "after-the-end")
NODES = ("before-create", "create-accepted", "after-create", "before-delete", "after-delete", "between-tasks")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("budget", [0, 1])
async def test_four_deaths_of_workers_in_one_attempt_start_it_once_and_spend_nothing(
    idle: System, diary: Diary, number: signal.Signals, budget: int
) -> None:
    worker = await idle.worker()
    job_id = await idle.submit(with_budget(budget, run=diary.task))
    await diary.started()
    for _ in range(4):
        worker.send(number)
        worker = await idle.worker()
        await log_grows(idle, job_id)
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert document["tasks"][0]["restarts"] == 0
    assert len(diary.lines("start")) == 1
    log = await idle.log(job_id)
    assert_counted(log)
    assert log == diary.printed()


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("place", [*STARTS, *NODES])
async def test_a_worker_killed_at_the_worst_moment_costs_neither_a_start_nor_a_restart_nor_a_node(
    clouded: System, cloud: Cloud, diary: Diary, tmp_path: Path, place: str, code: int
) -> None:
    doomed = await clouded.worker(FAULT_AT=place)
    diary.let_go()
    ends = f"[ $TOWLINE_ATTEMPT = 2 ] || exit {code}"
    job_id = await clouded.submit(
        with_budget(1, name="one", run=f"{diary.task}\n{ends}"), {"name": "two", "run": "true"}
    )
    await until(lambda: doomed.process.poll() is not None, f"the worker dies: {place}")
    await clouded.worker()
    document = await clouded.ended(job_id)
    restarts = 1 if code else 0
    assert document["status"] == Status.SUCCEEDED
    assert document["tasks"][0]["restarts"] == restarts
    assert [line.split()[1] for line in diary.lines("start")] == ["1", "2"][: 1 + restarts]
    for attempt in range(1, 2 + restarts):
        assert await clouded.log(job_id, attempt=attempt) == diary.printed(attempt)
    assert cloud.double_nodes() == []
    assert cloud.living() == []
    assert len(cloud.instances()) == 2
    assert processes_of_job(await clouded.jobs.log_key(job_id)) == []


@pytest.mark.parametrize(("code", "budget", "starts"), [(0, 0, 1), (3, 0, 1), (3, 1, 2)])
async def test_a_task_that_ends_while_no_worker_lives_is_seen_once_and_paid_once(
    idle: System, diary: Diary, code: int, budget: int, starts: int
) -> None:
    worker = await idle.worker()
    job_id = await idle.submit(with_budget(budget, run=f"{diary.task}\nexit {code}"))
    await diary.started()
    worker.send(signal.SIGKILL)
    diary.let_go()
    await until(lambda: diary.lines("end 1"), "the task ends by itself")
    await idle.worker()
    document = await idle.ended(job_id)
    assert document["status"] == (Status.SUCCEEDED if code == 0 else Status.FAILED)
    assert len(diary.lines("start")) == starts
    assert document["tasks"][0]["restarts"] == starts - 1
    assert idle.held_nodes() == []


async def test_a_worker_frozen_past_its_heartbeat_timeout_and_thawed_kills_nothing_and_writes_nothing(
    idle: System, diary: Diary
) -> None:
    frozen = await idle.worker()
    job_id = await idle.submit(with_budget(1, run=f"{diary.task}\n[ $TOWLINE_ATTEMPT = 2 ]"))
    await diary.started()
    frozen.send(signal.SIGSTOP)
    await idle.worker()
    await log_grows(idle, job_id)
    frozen.send(signal.SIGCONT)
    await log_grows(idle, job_id)
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert len(diary.lines("start")) == 2
    assert document["tasks"][0]["restarts"] == 1
    for attempt in (1, 2):
        assert await idle.log(job_id, attempt=attempt) == diary.printed(attempt)


async def test_a_worker_thawed_after_the_next_attempt_began_leaves_that_alone(idle: System, diary: Diary) -> None:
    frozen = await idle.worker()
    second = f"[ $TOWLINE_ATTEMPT = 1 ] && exit 1; until [ -e {diary.go}.2 ]; do sleep 0.05; done"
    job_id = await idle.submit(with_budget(1, run=f"{diary.task}\n{second}"))
    await diary.started()
    frozen.send(signal.SIGSTOP)
    await idle.worker()
    await log_grows(idle, job_id)
    diary.let_go()
    await diary.started(2)
    frozen.send(signal.SIGCONT)
    await asyncio.sleep(5)  # the fault itself: so long the thawed worker may do harm
    diary.go.with_name(diary.go.name + ".2").touch()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert [line.split()[1] for line in diary.lines("start")] == ["1", "2"]


async def test_ten_jobs_survive_rolling_restarts_of_their_worker(idle: System, tmp_path: Path) -> None:
    diaries = [Diary(tmp_path / f"diary-{number}") for number in range(10)]
    worker = await idle.worker()
    ids = [await idle.submit(with_budget(0, run=each.task)) for each in diaries]
    for each in diaries:
        await each.started()
    for _ in range(4):
        successor = await idle.worker()
        worker.send(signal.SIGTERM)
        worker = successor
    for each in diaries:
        each.let_go()
    documents = [await idle.ended(job_id) for job_id in ids]
    assert {document["status"] for document in documents} == {Status.SUCCEEDED}
    assert [len(each.lines("start")) for each in diaries] == [1] * 10
    for job_id, each in zip(ids, diaries, strict=True):
        log = await idle.log(job_id)
        assert_counted(log)
        assert log == each.printed()
