"""Nodes vanish, reboot, are taken away with and without warning: a recovery each time, and never a restart."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.cloud import Cloud, LocalMachines
from tests.support.openssh import OpenSsh
from tests.support.oracles import Diary, assert_counted, log_grows, processes_of_job, says
from tests.support.system import System, pool_of, until, with_budget
from towline.status import Status


def take_away(system: System, cloud: Cloud, *, preempted: bool = True) -> None:
    """The one instance that lives vanishes without a warning."""
    node_id = cloud.living()[0].node_id
    cloud.end(node_id, preempted=preempted)
    assert LocalMachines(system.home).take_away(node_id)


async def all_given_back(system: System, cloud: Cloud, job_id: str) -> None:
    """The node ledger and the process oracle."""
    assert cloud.living() == []
    assert cloud.double_nodes() == []
    assert processes_of_job(await system.jobs.log_key(job_id)) == []


async def test_five_preemptions_and_one_failure_cost_one_restart(clouded: System, cloud: Cloud, diary: Diary) -> None:
    await clouded.worker()
    run = f"{diary.task}\n[ $TOWLINE_RESTARTS = 1 ] || {{ rm {diary.go}; exit 5; }}"
    job_id = await clouded.submit(with_budget(1, run=run))
    for number in range(1, 6):
        await diary.started(number, 90)
        take_away(clouded, cloud)
    await diary.started(6, 90)
    diary.let_go()
    await diary.started(7, 90)
    diary.let_go()
    document = await clouded.ended(job_id)
    task = document["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 1, 5)
    assert [each["cause"] for each in task["attempts"]] == ["preempted"] * 5 + ["user", "user"]
    await all_given_back(clouded, cloud, job_id)


async def test_a_node_lost_while_it_boots_is_replaced(clouded: System, cloud: Cloud, diary: Diary) -> None:
    cloud.turns(create_s=3)
    await clouded.worker()
    job_id = await clouded.submit(with_budget(0, run=diary.task))
    await until(lambda: len(cloud.living()) == 1, "an instance is asked for")
    cloud.end(cloud.living()[0].node_id)
    diary.let_go()
    document = await clouded.ended(job_id)
    assert document["status"] == Status.SUCCEEDED
    assert len(diary.lines("start")) == 1
    assert len(cloud.instances()) == 2
    await all_given_back(clouded, cloud, job_id)


@pytest.mark.parametrize("preempted", [True, False])
async def test_a_node_lost_in_setup_is_replaced_and_setup_runs_again(
    clouded: System, cloud: Cloud, diary: Diary, preempted: bool
) -> None:
    await clouded.worker()
    job_id = await clouded.submit(with_budget(0, setup=diary.task, run="true"))
    await diary.started()
    take_away(clouded, cloud, preempted=preempted)
    await diary.started(2)
    diary.let_go()
    task = (await clouded.ended(job_id))["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 0, 1)
    assert task["attempts"][0]["cause"] == ("preempted" if preempted else "node_lost")
    await all_given_back(clouded, cloud, job_id)


async def test_a_node_lost_after_the_last_line_and_before_the_end_is_known_runs_again(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    worker = await clouded.worker()
    job_id = await clouded.submit(with_budget(0, run=diary.task))
    await diary.started()
    worker.send(signal.SIGKILL)
    diary.let_go()
    await until(lambda: diary.lines("end 1"), "the task ends, and nobody has seen it")
    take_away(clouded, cloud)
    await clouded.worker()
    task = (await clouded.ended(job_id))["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 0, 1)
    await all_given_back(clouded, cloud, job_id)


@pytest.mark.parametrize("vanishes", ["at once", "after a while"])
async def test_a_preemption_in_its_real_order_is_no_failure_of_the_users(
    clouded: System, cloud: Cloud, diary: Diary, vanishes: str
) -> None:
    """SIGTERM to the processes, exit 143 with its exit file, sshd stops, and only then does the cloud know."""
    cloud.turns(notice_s=20)
    await clouded.worker()
    task = with_budget(0, run=diary.task)
    task["resources"]["use_spot"] = True
    job_id = await clouded.submit(task)
    await diary.started()
    await log_grows(clouded, job_id)
    node_id = cloud.living()[0].node_id
    for each in processes_of_job(await clouded.jobs.log_key(job_id)):
        os.kill(int(each.split()[0]), signal.SIGTERM)
    await until(lambda: _exit_file(clouded), "the exit file is written")
    LocalMachines(clouded.home).take_away(node_id)
    if vanishes == "after a while":
        await clouded.shows(
            job_id, lambda each: "unreachable since" in each["reason"], "nobody knows yet what happened"
        )
    cloud.end(node_id, preempted=True)
    await diary.started(2)
    diary.let_go()
    task = (await clouded.ended(job_id))["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 0, 1)
    assert task["attempts"][0]["cause"] == "preempted"
    await all_given_back(clouded, cloud, job_id)


async def test_a_task_killed_by_a_signal_on_a_spot_node_that_lives_on_is_the_users_failure(
    clouded: System, cloud: Cloud
) -> None:
    cloud.turns(notice_s=3)
    await clouded.worker()
    job_id = await clouded.submit({"run": "kill -TERM $$", "resources": {"use_spot": True}})
    task = (await clouded.ended(job_id))["tasks"][0]
    assert (task["status"], task["exit_code"], task["recoveries"]) == (Status.FAILED, 143, 0)


def _exit_file(system: System) -> bool:
    return any((node / "home" / ".towline").glob("*/0/attempt-1/exit") for node in system.held_nodes())


async def test_a_reboot_is_a_recovery_on_the_same_node(idle: System, openssh: OpenSsh, diary: Diary) -> None:
    pool_of(idle, openssh)
    await idle.worker()
    job_id = await idle.submit({"run": diary.task, "resources": {"infra": "ssh/lab"}})
    pid = int(await diary.started())
    await says(idle, job_id, b"line 1")
    openssh.stop()
    reboot(openssh, pid)
    openssh.start()
    await diary.started(2)
    diary.let_go()
    task = (await idle.ended(job_id))["tasks"][0]
    assert (task["status"], task["restarts"], task["recoveries"]) == (Status.SUCCEEDED, 0, 1)
    assert task["attempts"][0]["cause"] == "reboot"
    assert_counted(await idle.log(job_id, attempt=2))


def reboot(host: OpenSsh, pid: int) -> None:
    """What a power failure leaves: no process, no exit file, and a boot id that is not the present one."""
    import psutil

    supervisor = psutil.Process(pid).parent()
    assert supervisor is not None
    for each in [supervisor, *supervisor.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    for boot in host.home.glob(".towline/*/0/attempt-1/boot"):
        boot.write_text("another-boot\n")


async def test_a_strangers_machine_at_the_address_is_a_lost_node_and_is_not_touched(
    idle: System, openssh: OpenSsh, diary: Diary, tmp_path: Path
) -> None:
    pool_of(idle, openssh)
    await idle.worker()
    resources = {"infra": "ssh/lab", "job_recovery": "NO_RECOVERY"}
    job_id = await idle.submit({"run": diary.task, "resources": resources})
    pid = int(await diary.started())
    await log_grows(idle, job_id)
    openssh.stop()
    reboot(openssh, pid)
    before = sorted(each for each in openssh.home.rglob("*"))
    openssh.new_host_keys("ed25519")
    openssh.start()
    document = await idle.ended(job_id, 180)
    assert document["status"] == Status.FAILED_NO_RESOURCE
    assert document["tasks"][0]["attempts"][0]["cause"] == "node_lost"
    assert len(diary.lines("start")) == 1
    assert sorted(each for each in openssh.home.rglob("*")) == before


async def test_after_a_recovery_the_patience_with_a_silent_node_starts_afresh(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    """Each of two nodes is silent for more than half of the limit: together that would be too long."""
    from tests.faults.test_network import newest_port, unreachable
    from tests.support.proxy import Proxy

    between = Proxy(lambda: newest_port(clouded))
    cloud.turns(proxy_port=await between.start())
    clouded.extra_environment["TOWLINE_UNREACHABLE_LIMIT"] = "8"
    await clouded.worker()
    job_id = await clouded.submit(with_budget(0, run=diary.task))
    for number in (1, 2):
        await diary.started(number)
        await says(clouded, job_id, b"line", attempt=number)
        between.freeze()
        between.cut()
        await clouded.shows(job_id, unreachable, "the silence is noticed")
        await _silent_for(5)
        if number == 1:
            take_away(clouded, cloud)
        between.thaw()
        between.cut()
    await says(clouded, job_id, b"line", attempt=2)
    diary.let_go()
    task = (await clouded.ended(job_id))["tasks"][0]
    assert (task["status"], task["recoveries"]) == (Status.SUCCEEDED, 1)
    await between.stop()


async def _silent_for(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)  # the fault itself


async def test_nodes_that_all_die_young_are_asked_for_one_at_a_time_and_ever_more_slowly(
    clouded: System, cloud: Cloud, diary: Diary
) -> None:
    cloud.turns(lives_s=1.5)
    await clouded.worker()
    job_id = await clouded.submit(with_budget(0, run=diary.task))
    await until(lambda: len(cloud.instances()) >= 5, "the fifth instance", 120)
    document = await clouded.jobs.status(job_id)
    assert document["status"] in (Status.RECOVERING, Status.RUNNING)
    assert document["tasks"][0]["recoveries"] >= 4
    asked = [each.asked_at for each in cloud.instances()]
    gaps = [after - before for before, after in pairwise(asked)]
    assert gaps[2] > 3.5  # 2 s of pause after the second young death in a row, 4 s after the third
    assert gaps[3] > 5.5
    assert cloud.asked() == len(cloud.instances())
    assert cloud.double_nodes() == []
    await clouded.cli("cancel", job_id, "--wait")
    await until(lambda: not cloud.living(), "nothing is left")
