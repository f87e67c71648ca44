"""Nodes on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.providers.conftest import OWNER, Bench, a_tag
from tests.support.system import ROOT, own_seconds, until
from towline.errors import PrecheckFailed
from towline.providers.local import LocalProvider
from towline.providers.protocol import NodeState, Request
from towline.ssh.server import make_key

CREATOR = """
import asyncio, os, signal, sys
from pathlib import Path
from towline.providers.local import LocalProvider
from towline.providers.protocol import NodeTag, Request

async def main():
    provider = LocalProvider(Path(sys.argv[1]))
    tag = NodeTag(sys.argv[2], "job-0123456789", "job", 0, 0, 1)
    await provider.create(tag, Request(), (await provider.offers(Request()))[0])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_node_survives_the_death_of_whoever_created_it(local: Bench) -> None:
    command = [sys.executable, "-c", CREATOR, str(local.home), OWNER]
    ran = await asyncio.to_thread(subprocess.run, command, cwd=ROOT)
    assert ran.returncode == -signal.SIGKILL
    [found] = await local.provider.list(OWNER)
    assert found.state == NodeState.RUNNING
    assert await local.output((await local.create()), "basename $TOWLINE_NODE") == found.node.node_id


async def test_a_node_whose_creator_died_before_it_was_ready_comes_up_and_is_found(local: Bench) -> None:
    dies_as_it_begins_to_wait = "import select\nselect.select = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    command = [sys.executable, "-c", CREATOR.replace("async def", dies_as_it_begins_to_wait + "async def", 1)]
    ran = await asyncio.to_thread(subprocess.run, [*command, str(local.home), OWNER], cwd=ROOT)
    assert ran.returncode == -signal.SIGKILL
    await until(lambda: any(local.home.glob("nodes/local-*/ready.json")), "the node is ready")
    node = await local.create()
    assert (await local.provider.describe(node)).state == NodeState.RUNNING
    assert await local.output(node, "basename $TOWLINE_NODE") == node.node_id


async def test_a_preempted_node_is_gone_with_all_that_ran_on_it(local: Bench) -> None:
    assert isinstance(local.provider, LocalProvider)
    node = await local.create()
    marker = local.home / "pid"
    await local.start(node, f"setsid sleep 54321 & echo started > {marker}; sleep 54321")
    await until(marker.exists, "the task runs")
    assert local.provider.preempt(node.node_id)
    report = await local.provider.describe(node)
    assert (report.state, report.preempted) == (NodeState.GONE, True)
    await until(lambda: not _sleeping("54321"), "everything on it is gone", 5)
    assert not local.provider.preempt(node.node_id)


async def test_a_killed_process_is_a_node_that_is_gone_and_is_not_brought_back_by_its_tag(local: Bench) -> None:
    node = await local.create()
    [found] = await local.provider.list(OWNER)
    assert found.pid
    os.kill(found.pid, signal.SIGKILL)
    await until(lambda: _is_gone(local, node), "the provider notices")
    assert (await local.create()) == node
    assert (await local.provider.describe(node)).state == NodeState.GONE


async def _is_gone(bench: Bench, node: object) -> bool:
    return (await bench.provider.describe(node)).state == NodeState.GONE  # type: ignore[arg-type]


async def test_a_thousand_orphans_leave_no_zombies_and_exit_codes_stay_right(local: Bench) -> None:
    node = await local.create()
    async with local.connected(node) as connection:
        await connection.run("for i in $(seq 1000); do (setsid true &) ; done")
        codes = [(await connection.run(f"exit {code}")).exit_status for code in (0, 1, 7, 255)]
        left = await connection.run("ps -eo stat= | grep -c '^Z'")
    assert codes == [0, 1, 7, 255]
    assert left.stdout.strip() == b"0"


async def test_a_command_is_hung_up_when_its_client_goes_away(local: Bench) -> None:
    node = await local.create()
    seconds = own_seconds()
    async with local.connected(node) as connection, connection.open(f"sleep {seconds}; sleep {seconds}") as stream:
        await until(lambda: _sleeping(seconds), "the command runs")
        del stream
    await until(lambda: not _sleeping(seconds), "the command ends with its client")


def _sleeping(seconds: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", seconds]]


async def test_bytes_pass_unchanged_and_a_large_stream_keeps_the_node_small(local: Bench) -> None:
    node = await local.create()
    [found] = await local.provider.list(OWNER)
    total = 0
    async with (
        local.connected(node) as connection,
        connection.open("head -c 60000000 /dev/zero; printf '\\377\\0end'") as s,
    ):
        last = b""
        while data := await s.read(1 << 20):
            total += len(data)
            last = data
    assert total == 60_000_005
    assert last.endswith(b"\xff\0end")
    assert found.pid
    family = [psutil.Process(found.pid), *psutil.Process(found.pid).children(recursive=True)]
    assert max(each.memory_info().rss for each in family) < 120 * 1024 * 1024


async def test_nothing_of_the_workers_environment_reaches_a_command(
    local: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY", "TOWLINE_LOG_STORE"):
        monkeypatch.setenv(name, "canary")
    node = await local.create()
    assert "canary" not in await local.output(node, "env; cat /proc/[0-9]*/environ")


async def test_an_idle_node_ends_with_its_lease_and_one_in_use_does_not(tmp_path: Path, local: Bench) -> None:
    local.provider = LocalProvider(local.home, lease_s=1)
    node = await local.create()
    async with local.connected(node) as connection:
        assert (await connection.run("sleep 2; echo still here")).stdout == b"still here\n"
    await until(lambda: _is_gone(local, node), "the lease ends the node", 20)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(cpus=10_000), "cpus: 10000 wanted"),
        (Request(memory_gib=1e6), "memory: 1e[+]06 GiB wanted"),
        (Request(accelerators=(("H100", 8),)), "8 H100 wanted"),
        (Request(instance_type="p5.48xlarge"), "no p5.48xlarge"),
    ],
)
async def test_a_request_beyond_this_machine_is_refused_with_what_it_has(
    local: Bench, request_: Request, words: str
) -> None:
    with pytest.raises(PrecheckFailed, match=f"{words}.*this machine has {os.cpu_count()} CPUs"):
        await local.provider.offers(request_)


@pytest.mark.parametrize("node_id", ["../../etc", "local-zz", "", "local-0123456789abc", "local-0123456789ab\n"])
async def test_a_node_id_never_leads_out_of_the_nodes_directory(local: Bench, node_id: str) -> None:
    assert isinstance(local.provider, LocalProvider)
    with pytest.raises(PrecheckFailed):
        local.provider.preempt(node_id)


async def test_a_directory_that_nobody_understands_stands_in_nobodys_way(local: Bench) -> None:
    node = await local.create()
    strange = local.home / "nodes" / "local-ffffffffffff"
    strange.mkdir()
    (strange / "wanted.json").write_text('{"tag": {"of": "another version"}}')
    assert [each.node.node_id for each in await local.provider.list(OWNER)] == [node.node_id]
    await asyncio.gather(*(local.create(a_tag(rank=rank)) for rank in range(1, 4)))


async def test_two_homes_with_a_node_of_the_same_tag_do_each_other_no_harm(local: Bench, tmp_path: Path) -> None:
    other = LocalProvider(tmp_path / "other")
    node = await local.create()
    twin = await other.create(a_tag(), Request(), (await other.offers(Request()))[0])
    await other.terminate(twin)
    assert (await local.provider.describe(node)).state == NodeState.RUNNING
    assert await local.output(node, "echo alive") == "alive"


async def test_a_hundred_threads_that_need_the_first_key_get_the_same_one(tmp_path: Path) -> None:
    path = tmp_path / "id_ed25519"
    keys = await asyncio.gather(*(asyncio.to_thread(make_key, path) for _ in range(100)))
    assert set(keys) == {make_key(path)}
    assert [each.name for each in tmp_path.iterdir()] == ["id_ed25519"]
    assert path.stat().st_mode & 0o777 == 0o600
