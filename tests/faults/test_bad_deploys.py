"""Bugs of Towline's own: in an activity they end the job in order; in the workflow they only suspend it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.oracles import Diary, assert_counted, log_grows
from tests.support.system import System, until, with_budget
from towline.status import Status


async def test_an_answer_that_is_none_ends_the_job_and_gives_its_nodes_back(clouded: System, cloud: Cloud) -> None:
    await clouded.worker(FAULT_AT="nonsense")
    job_id = await clouded.submit({"run": "true"})
    document = await clouded.ended(job_id)
    assert document["status"] == Status.FAILED_CONTROLLER
    assert "run_task" in document["reason"]
    assert cloud.living() == []


@pytest.mark.parametrize(
    ("fault", "words"), [("broken-workflow", "a bug of this deploy"), ("other-history", "Nondeterminism")]
)
async def test_a_bad_deploy_suspends_the_job_says_so_and_a_mended_one_goes_on(
    clouded: System, cloud: Cloud, diary: Diary, fault: str, words: str
) -> None:
    worker = await clouded.worker()
    job_id = await clouded.submit(with_budget(1, run=f"{diary.task}\n[ $TOWLINE_ATTEMPT = 2 ]"))
    pid = await diary.started()
    await log_grows(clouded, job_id)
    worker.send(signal.SIGKILL)
    broken = await clouded.worker(FAULT_AT=fault)
    await clouded.client.get_workflow_handle(job_id).signal("poke")  # something for the workflow to do
    await until(lambda: _stuck_in(words, clouded, "queue", "--json"), "the queue shows it as stuck")
    await until(lambda: _stuck_in(words, clouded, "status", job_id, "--json"), "the status shows it as stuck")
    await log_grows(clouded, job_id)
    assert [line.split()[2] for line in diary.lines("start")] == [pid]
    broken.send(signal.SIGTERM)
    await clouded.worker()
    await log_grows(clouded, job_id)
    diary.let_go()
    document = await clouded.ended(job_id)
    assert (document["status"], document["tasks"][0]["restarts"]) == (Status.SUCCEEDED, 1)
    assert len(diary.lines("start")) == 2
    assert_counted(await clouded.log(job_id))
    assert cloud.living() == []


async def _stuck_in(words: str, system: System, *command: str) -> bool:
    shown = (await system.cli(*command)).out.decode()
    return "stuck" in shown and words in shown


async def test_a_call_that_blocks_the_worker_longer_than_its_heartbeats_last_disturbs_no_task(
    clouded: System, cloud: Cloud, tmp_path: Path
) -> None:
    """It costs another job's activities a heartbeat timeout: they are called again, and re-attach."""
    worker = await clouded.worker(FAULT_AT="blocked-loop")
    diaries = [Diary(tmp_path / f"diary-{number}") for number in range(3)]
    ids = [await clouded.submit(with_budget(0, run=each.task)) for each in diaries]
    for each in diaries:
        await each.started()
    failing = await clouded.submit({"run": "exit 1"})  # its end is held against the provider: that call blocks
    await clouded.ended(failing)
    await until(lambda: "the event loop was blocked" in worker.log.read_text(), "the lag is logged")
    for each in diaries:
        each.let_go()
    documents = [await clouded.ended(job_id) for job_id in ids]
    assert {document["status"] for document in documents} == {Status.SUCCEEDED}
    assert [len(each.lines("start")) for each in diaries] == [1, 1, 1]
    for job_id in ids:
        assert_counted(await clouded.log(job_id))
