"""Trouble for hundreds of jobs at once: they come back in an orderly queue, and none is taken for lost."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.openssh import OpenSsh
from tests.support.oracles import Diary, assert_counted
from tests.support.proxy import Proxy
from tests.support.scale import scaled
from tests.support.system import System, until, with_budget
from towline.status import Status

pytestmark = pytest.mark.alone
JOBS = scaled(some=100, full=300)
CANCELLED = scaled(some=60, full=200)
RESUMED_WITHIN_S = 60


@pytest.mark.timeout(900)
async def test_hundreds_of_jobs_reconnect_after_one_cut_and_after_the_death_of_their_worker(
    crowded: System, cloud: Cloud, openssh: OpenSsh, proxy: Proxy, tmp_path: Path
) -> None:
    cloud.turns(proxy_port=proxy.port)
    diaries = [Diary(tmp_path / f"diary-{number}", pause_s=3) for number in range(JOBS)]
    worker = await crowded.worker()
    ids = [await crowded.submit(with_budget(0, run=each.task)) for each in diaries]
    for each in diaries:
        await each.started(limit_s=300)
    paths = [await crowded.log_path(job_id) for job_id in ids]
    await _all_grow(paths, 120)

    assert proxy.cut() >= 2 * JOBS
    cut_at = time.monotonic()
    await _all_grow(paths, RESUMED_WITHIN_S)
    print(
        f"\n{JOBS} jobs were back {time.monotonic() - cut_at:.1f} s after the cut,"
        f" with at most {proxy.most_shaking} handshakes at a time"
    )
    assert proxy.most_shaking <= 10

    worker.send(signal.SIGKILL)
    await crowded.worker()
    ready_at = time.monotonic()
    await _all_grow(paths, RESUMED_WITHIN_S)
    print(f"{JOBS} jobs were back {time.monotonic() - ready_at:.1f} s after the start of a worker")

    for each in diaries:
        each.let_go()
    documents = await asyncio.gather(*(crowded.ended(job_id, 300) for job_id in ids))
    assert {document["status"] for document in documents} == {Status.SUCCEEDED}
    assert sum(document["tasks"][0]["recoveries"] for document in documents) == 0
    assert [len(each.lines("start")) for each in diaries] == [1] * JOBS
    for job_id, each in zip(ids, diaries, strict=True):
        log = await crowded.log(job_id)
        assert_counted(log)
        assert log == each.printed()
    assert cloud.living() == []


async def _all_grow(paths: list[Path], limit_s: float) -> None:
    """Wait until each log is longer than now."""
    before = [path.stat().st_size if path.exists() else 0 for path in paths]
    waiting = dict(zip(paths, before, strict=True))

    def grown() -> bool:
        for path, size in list(waiting.items()):
            if path.exists() and path.stat().st_size > size:
                del waiting[path]
        return not waiting

    await until(grown, "every log has grown", limit_s)


async def test_hundreds_of_jobs_cancelled_at_once_are_all_gone(
    crowded: System, cloud: Cloud, openssh: OpenSsh, tmp_path: Path
) -> None:
    diaries = [Diary(tmp_path / f"diary-{number}", pause_s=5) for number in range(CANCELLED)]
    await crowded.worker()
    ids = [await crowded.submit(with_budget(1, run=each.task)) for each in diaries]
    for each in diaries:
        await each.started(limit_s=150)
    await asyncio.gather(*(crowded.jobs.cancel(job_id) for job_id in ids))
    documents = await asyncio.gather(*(crowded.ended(job_id, 150) for job_id in ids))
    assert {document["status"] for document in documents} == {Status.CANCELLED}
    assert cloud.living() == []
    assert crowded.processes_of(str(tmp_path / "diary-")) == []
    assert [len(each.lines("start")) for each in diaries] == [1] * CANCELLED
