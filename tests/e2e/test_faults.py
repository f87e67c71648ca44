"""Workers die, nodes vanish, jobs are cancelled: one start per attempt, the budget untouched, nothing left."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests.e2e.test_outcomes import with_budget
from tests.support.system import System, until
from towline.status import Status


class Diary:
    """A file outside the nodes in which a task writes what it does: the run ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go = path.with_suffix(".go")
        self.task = (
            f'echo "start $TOWLINE_ATTEMPT $$" >> {path}; n=0\n'
            f"until [ -e {self.go} ]; do n=$((n+1)); echo line $n; sleep 0.05; done\n"
            f'echo "end $TOWLINE_ATTEMPT" >> {path}; echo counted $n\n'
        )

    def lines(self, word: str) -> list[str]:
        """The entries that begin with `word`."""
        text = self.path.read_text() if self.path.exists() else ""
        return [line for line in text.splitlines() if line.startswith(word)]

    async def started(self, times: int = 1) -> None:
        """Wait for so many starts."""
        await until(lambda: len(self.lines("start")) >= times, f"start {times}")

    def let_go(self) -> None:
        """Let the task end."""
        self.go.touch()


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def counted(log: bytes) -> None:
    """Every line is there once, in order."""
    lines = log.decode().splitlines()
    total = int(lines[-1].removeprefix("counted "))
    assert lines[:-1] == [f"line {number}" for number in range(1, total + 1)]


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
        before = len(await idle.log(job_id))
        await until(lambda seen=before: _longer(idle, job_id, seen), "the new worker streams")
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert document["tasks"][0]["restarts"] == 0
    assert len(diary.lines("start")) == 1
    counted(await idle.log(job_id))


async def _longer(system: System, job_id: str, seen: int) -> bool:
    return len(await system.log(job_id)) > seen


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


async def test_a_worker_frozen_past_its_heartbeat_timeout_and_thawed_touches_nothing(
    idle: System, diary: Diary
) -> None:
    frozen = await idle.worker()
    job_id = await idle.submit(with_budget(1, run=f"{diary.task}\n[ $TOWLINE_ATTEMPT = 2 ]"))
    await diary.started()
    frozen.send(signal.SIGSTOP)
    await idle.worker()
    before = len(await idle.log(job_id))
    await until(lambda: _longer(idle, job_id, before), "the second worker takes over")
    frozen.send(signal.SIGCONT)
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert len(diary.lines("start")) == 2
    assert document["tasks"][0]["restarts"] == 1


async def test_a_preempted_node_is_replaced_and_spends_nothing(system: System, diary: Diary) -> None:
    job_id = await system.submit(with_budget(0, run=diary.task))
    for number in range(1, 4):
        await diary.started(number)
        node = (await system.cli("nodes", "--json")).json[0]
        assert (await system.cli("nodes", "preempt", node["node_id"])).code == 0
    await diary.started(4)
    diary.let_go()
    document = await system.ended(job_id)
    task = document["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 0, 3)
    assert [each["cause"] for each in task["attempts"]] == ["preempted"] * 3 + ["user"]
    assert len({each["attempt"] for each in task["attempts"]}) == 4
    assert system.held_nodes() == []


async def test_cancel_ends_the_whole_tree_keeps_the_last_words_and_gives_the_node_back(system: System) -> None:
    run = (
        "trap 'echo bye; exit 0' TERM\n"
        "setsid sleep 76543 & (setsid sh -c 'trap \"\" TERM; sleep 76542; sleep 76542' &) ; nohup sleep 76541 &\n"
        "echo ready; while :; do sleep 0.1; done"
    )
    job_id = await system.submit({"run": run}, {"run": "true"})
    await until(lambda: _says(system, job_id, b"ready"), "the task runs")
    answer = await system.cli("cancel", job_id, "--wait")
    assert answer.code == 0
    document = await system.ended(job_id)
    assert [task["status"] for task in document["tasks"]] == [Status.CANCELLED, Status.CANCELLED]
    assert document["tasks"][0]["attempts"][-1]["cause"] == "cancelled"
    assert b"bye" in await system.log(job_id)
    assert system.held_nodes() == []
    assert system.processes_of("sleep 7654") == []
    described = await system.client.get_workflow_handle(job_id).describe()
    assert described.status is WorkflowExecutionStatus.CANCELED
    again = await system.cli("cancel", job_id)
    assert again.code == 0
    assert "already ended" in again.err
    assert (await system.cli("logs", job_id)).code == 103


async def _says(system: System, job_id: str, word: bytes) -> bool:
    return word in await system.log(job_id)


async def test_the_nodes_of_a_terminated_workflow_are_swept(system: System, diary: Diary) -> None:
    job_id = await system.submit({"run": diary.task})
    await diary.started()
    await system.client.get_workflow_handle(job_id).terminate("by an operator")
    await until(lambda: not system.held_nodes(), "the sweep ends the node", 120)  # two looks, each within 36 s
    assert (await system.jobs.status(job_id))["status"] == Status.CANCELLED


async def test_the_server_may_go_away_and_come_back(idle: System, server: object, diary: Diary) -> None:
    from tests.support.system import Server

    assert isinstance(server, Server)
    await idle.worker()
    job_id = await idle.submit(with_budget(0, run=diary.task))
    await diary.started()
    server.stop()
    try:
        await asyncio.sleep(5)  # the fault itself: longer than the heartbeat timeout
    finally:
        server.start()
    diary.let_go()
    document = await idle.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert len(diary.lines("start")) == 1
    counted(await idle.log(job_id))


async def test_ten_jobs_survive_rolling_restarts_of_their_worker(idle: System, tmp_path: Path) -> None:
    diaries = [Diary(tmp_path / f"diary-{number}") for number in range(10)]
    worker = await idle.worker()
    ids = [await idle.submit(with_budget(0, run=each.task)) for each in diaries]
    for each in diaries:
        await each.started()
    for _ in range(3):
        successor = await idle.worker()
        worker.send(signal.SIGTERM)
        worker = successor
    for each in diaries:
        each.let_go()
    documents = [await idle.ended(job_id) for job_id in ids]
    assert {document["status"] for document in documents} == {Status.SUCCEEDED}
    assert [len(each.lines("start")) for each in diaries] == [1] * 10
    for job_id in ids:
        counted(await idle.log(job_id))
