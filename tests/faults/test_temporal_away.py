"""Temporal goes away under fifty jobs: nothing restarts, and afterwards every status is right."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.oracles import Diary, assert_counted, processes_of_job
from tests.support.scale import full_only
from tests.support.system import Server, System, until, with_budget
from towline.status import Status

JOBS = 50


@pytest.mark.parametrize(
    ("away_s", "how"),
    [
        (30, signal.SIGKILL),
        pytest.param(30, signal.SIGTERM, marks=full_only),
        pytest.param(300, signal.SIGKILL, id="5 minutes", marks=full_only),
    ],
)
@pytest.mark.timeout(600)
async def test_fifty_jobs_do_not_notice(
    crowded: System, server: Server, cloud: Cloud, tmp_path: Path, away_s: float, how: signal.Signals
) -> None:
    """A third runs on, a third ends well meanwhile, a third fails meanwhile and has one restart left."""
    diaries = [Diary(tmp_path / f"diary-{number}", pause_s=0.5) for number in range(JOBS)]
    await crowded.worker()
    ids = [await crowded.submit(with_budget(1, run=_ends(number, each))) for number, each in enumerate(diaries)]
    for each in diaries:
        await each.started(limit_s=120)
    server.stop(how)
    try:
        await asyncio.sleep(away_s / 3)  # the fault itself
        for number, each in enumerate(diaries):
            if number % 3:
                each.let_go()
        for number, each in enumerate(diaries):
            if number % 3:
                await until(lambda ended=each: ended.lines("end 1"), "it ends though nobody looks")
        await asyncio.sleep(away_s * 2 / 3)
    finally:
        server.start()
    for each in diaries:
        each.let_go()
    documents = [await crowded.ended(job_id, 180) for job_id in ids]
    assert {document["status"] for document in documents} == {Status.SUCCEEDED}
    restarts = [document["tasks"][0]["restarts"] for document in documents]
    assert restarts == [int(number % 3 == 2) for number in range(JOBS)]
    assert [len(each.lines("start")) for each in diaries] == [1 + number for number in restarts]
    for job_id, each in zip(ids, diaries, strict=True):
        log = await crowded.log(job_id)
        assert_counted(log)
        assert log == each.printed()
        assert processes_of_job(await crowded.jobs.log_key(job_id)) == []
    assert cloud.living() == []
    assert cloud.double_nodes() == []


def _ends(number: int, diary: Diary) -> str:
    return f"{diary.task}\n[ $TOWLINE_ATTEMPT = 2 ] || exit {int(number % 3 == 2)}"
