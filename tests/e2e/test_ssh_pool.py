"""Jobs on machines that one already has: OpenSSH's own server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.openssh import OpenSsh, open_ssh
from tests.support.system import System, own_seconds, pool_of, until
from towline.status import Status

POOL = {"infra": "ssh/lab"}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[OpenSsh]:
    with open_ssh(tmp_path / "host") as server:
        yield server


async def test_a_job_runs_on_a_host_of_the_pool_and_leaves_nothing_there(system: System, host: OpenSsh) -> None:
    pool_of(system, host)
    seconds = own_seconds()
    run = f"echo on $HOME; nohup sleep {seconds} >/dev/null 2>&1 & [ $TOWLINE_ATTEMPT = 2 ]"
    task = {"run": run, "resources": {**POOL, "job_recovery": {"max_restarts_on_errors": 1}}}
    job_id = await system.submit(task)
    document = await system.ended(job_id)
    assert document["status"] == Status.SUCCEEDED, document
    assert document["tasks"][0]["restarts"] == 1
    assert await system.log(job_id, attempt=2) == f"on {host.home}\n".encode()
    assert not (host.home / ".towline" / "claim").exists()
    assert list(host.home.glob(".towline/*/*/attempt-*")) == []
    assert system.processes_of(f"sleep {seconds}") == []


async def test_a_host_runs_one_task_at_a_time_and_the_next_job_gets_it_when_it_is_free(
    system: System, host: OpenSsh, tmp_path: Path
) -> None:
    pool_of(system, host)
    diary, go = tmp_path / "diary", tmp_path / "go"
    run = f"echo begin >> {diary}; until [ -e {go} ]; do sleep 0.05; done; echo end >> {diary}"
    first = await system.submit({"run": run, "resources": POOL})
    await until(diary.exists, "the first job runs")
    second = await system.submit({"run": run, "resources": POOL})
    waiting = await until(lambda: _waits(system, second), "the second job says what it waits for")
    assert first in waiting
    go.touch()
    assert (await system.ended(first))["status"] == Status.SUCCEEDED
    assert (await system.ended(second, 90))["status"] == Status.SUCCEEDED
    assert diary.read_text().split() == ["begin", "end", "begin", "end"]


async def _waits(system: System, job_id: str) -> str:
    described = await system.client.get_workflow_handle(job_id).describe()
    failures = [each.last_failure.message for each in described.raw_description.pending_activities]
    return next((text for text in failures if "held by" in text), "")


async def test_a_host_that_is_another_machine_now_is_a_lost_node_and_nothing_is_run_there(
    system: System, host: OpenSsh, tmp_path: Path
) -> None:
    pool_of(system, host)
    diary = tmp_path / "diary"
    task = {"run": f"echo begin >> {diary}; sleep 300", "resources": {**POOL, "job_recovery": "NO_RECOVERY"}}
    job_id = await system.submit(task)
    await until(diary.exists, "the job runs")
    host.stop()
    host.new_host_keys("ed25519")
    host.start()
    document = await system.ended(job_id, 120)
    assert document["status"] == Status.FAILED_NO_RESOURCE
    assert document["tasks"][0]["attempts"][0]["cause"] == "node_lost"
    assert diary.read_text() == "begin\n"


async def test_cut_connections_disturb_nothing(system: System, host: OpenSsh, tmp_path: Path) -> None:
    pool_of(system, host)
    diary, go = tmp_path / "diary", tmp_path / "go"
    run = f"echo begin >> {diary}; n=0; until [ -e {go} ]; do n=$((n+1)); echo $n; sleep 0.05; done; echo total $n"
    job_id = await system.submit({"run": run, "resources": POOL})
    for _ in range(4):
        before = len(await system.log(job_id))
        await until(lambda seen=before: _longer(system, job_id, seen), "the log is streamed")
        host.cut()
    go.touch()
    document = await system.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert document["tasks"][0]["recoveries"] == 0
    lines = (await system.log(job_id)).decode().splitlines()
    assert lines[:-1] == [str(number) for number in range(1, int(lines[-1].split()[1]) + 1)]
    assert diary.read_text() == "begin\n"


async def _longer(system: System, job_id: str, seen: int) -> bool:
    return len(await system.log(job_id)) > seen
