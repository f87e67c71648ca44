"""The network between worker and node freezes, drops, delays and cuts: the same process runs on and is found again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.openssh import OpenSsh
from tests.support.oracles import Diary, assert_counted, log_grows
from tests.support.proxy import Proxy
from tests.support.scale import scaled
from tests.support.system import System, pool_of, until, with_budget
from towline.status import Status

# What users met: a firewall that forgot its connections, a garbage collection, a live migration.
FROZEN_S = scaled(some=50, full=90)
DETECTED_WITHIN_S = 45
POOL = {"infra": "ssh/lab"}


async def on_pool(idle: System, host: OpenSsh, port: int, run: str, **resources: object) -> str:
    """A job on the one host of a pool, which is reached at `port`."""
    pool_of(idle, host, port=port)
    await idle.worker()
    return await idle.submit({"run": run, "resources": {**POOL, **resources}})


async def undisturbed(idle: System, diary: Diary, job_id: str) -> None:
    """Let the task end, and see that nothing but the network was in trouble."""
    diary.let_go()
    document = await idle.ended(job_id, 120)
    task = document["tasks"][0]
    assert (task["status"], task["recoveries"], task["restarts"]) == (Status.SUCCEEDED, 0, 0)
    assert len(diary.lines("start")) == 1
    log = await idle.log(job_id)
    assert_counted(log)
    assert log == diary.printed()


@pytest.mark.parametrize("how", ["packets dropped", "sshd frozen"])
@pytest.mark.timeout(300)
async def test_a_long_silence_is_said_and_then_forgotten(
    idle: System, openssh: OpenSsh, proxy: Proxy, diary: Diary, how: str
) -> None:
    job_id = await on_pool(idle, openssh, proxy.port, diary.task)
    await diary.started()
    await log_grows(idle, job_id)
    freeze, thaw = (proxy.freeze, proxy.thaw) if how == "packets dropped" else (openssh.freeze, openssh.thaw)
    freeze()
    frozen_at = time.monotonic()
    reason = await idle.shows(
        job_id, unreachable, "the status says since when the node is unreachable", DETECTED_WITHIN_S
    )
    assert "since 20" in reason
    await asyncio.sleep(FROZEN_S - (time.monotonic() - frozen_at))  # the fault itself
    thaw()
    await log_grows(idle, job_id)
    await idle.shows(job_id, lambda each: not unreachable(each), "the status says no longer that it is unreachable")
    await undisturbed(idle, diary, job_id)


def unreachable(document: dict[str, object]) -> str:
    """The reason, while it says that the node is unreachable."""
    reason = str(document["reason"])
    return reason if "unreachable since" in reason else ""


@pytest.mark.timeout(300)
async def test_connections_reset_every_five_seconds_disturb_nothing(
    idle: System, openssh: OpenSsh, proxy: Proxy, diary: Diary
) -> None:
    job_id = await on_pool(idle, openssh, proxy.port, diary.task)
    await diary.started()
    for _ in range(6):
        await asyncio.sleep(5)  # the fault itself
        assert proxy.cut() > 0
        await log_grows(idle, job_id)
    await undisturbed(idle, diary, job_id)


async def test_three_hundred_milliseconds_each_way_only_take_time(
    idle: System, openssh: OpenSsh, proxy: Proxy, diary: Diary
) -> None:
    proxy.delay(0.3)
    job_id = await on_pool(idle, openssh, proxy.port, diary.task)
    await diary.started()
    await log_grows(idle, job_id)
    await undisturbed(idle, diary, job_id)


async def test_a_node_whose_processors_are_all_taken_is_waited_for(
    idle: System, openssh: OpenSsh, proxy: Proxy, diary: Diary
) -> None:
    hogs = 'for _ in 1 2 3 4 5 6 7 8; do (while :; do :; done) & hogs="$hogs $!"; done\n'
    job_id = await on_pool(idle, openssh, proxy.port, f"{hogs}{diary.task}\nkill $hogs")
    await diary.started()
    await log_grows(idle, job_id)
    assert proxy.cut() > 0
    await log_grows(idle, job_id)
    await undisturbed(idle, diary, job_id)


@pytest.mark.timeout(300)
async def test_a_silent_node_that_its_provider_calls_gone_is_replaced_within_thirty_seconds(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    between = Proxy(lambda: newest_port(clouded))
    cloud.turns(proxy_port=await between.start())
    await clouded.worker()
    job_id = await clouded.submit(with_budget(0, run=diary.task))
    await diary.started()
    await log_grows(clouded, job_id)
    between.freeze()
    await clouded.shows(job_id, unreachable, "the silence is noticed", DETECTED_WITHIN_S)
    gone_at = time.monotonic()
    cloud.end(cloud.living()[0].node_id, preempted=True)
    await until(lambda: len(cloud.living()) == 1, "another node is asked for", 30)
    between.thaw()
    await diary.started(2, 30)
    assert time.monotonic() - gone_at < 30
    diary.let_go()
    document = await clouded.ended(job_id)
    task = document["tasks"][0]
    assert (task["status"], task["recoveries"], task["restarts"]) == (Status.SUCCEEDED, 1, 0)
    assert task["attempts"][0]["cause"] == "preempted"
    await between.stop()


def newest_port(system: System) -> int:
    """Where the youngest local node listens."""
    import json

    newest = max(system.held_nodes(), key=lambda each: (each / "wanted.json").stat().st_mtime)
    return int(json.loads((newest / "ready.json").read_text())["port"])


async def test_two_hundred_followers_opened_and_dropped_leave_nothing_on_either_side(
    openssh: OpenSsh, tmp_path: Path
) -> None:
    import psutil

    from towline.ssh.client import SshClient
    from towline.supervision import Commands, NodeTask

    me = psutil.Process()
    async with SshClient().connect(openssh.access) as connection:
        task = NodeTask(connection, "job-0123456789", 0)
        await task.ensure(1, Commands(None, "while :; do echo line; sleep 0.02; done", {}))
        before = me.num_fds()
        for _ in range(200):
            follower = task.follow(1, 0)
            assert await anext(follower)
            await follower.aclose()
        await until(lambda: len(openssh.sessions()) == 0, "no command of ours runs on the node")
        assert me.num_fds() <= before + 2
        await task.stop(0)
