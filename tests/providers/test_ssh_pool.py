"""Machines that one already has, as nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.conftest import OWNER, Bench, a_tag
from towline.errors import (
    ConnectionLost,
    HostKeyChanged,
    NoCapacity,
    PrecheckFailed,
    ProviderUnavailable,
    TaskClosed,
    UsageError,
)
from towline.providers.pools import load_pools
from towline.providers.protocol import NodeState
from towline.supervision import Commands, NodeTask


async def test_each_host_holds_one_task_and_a_full_pool_names_who_holds_it(pool: Bench) -> None:
    await pool.create()
    await pool.create(a_tag(job_id="second", job_key="second-0123456789"))
    with pytest.raises(NoCapacity, match=r"held by job job, task 1; .* held by job second, task 1"):
        await pool.create(a_tag(job_id="third", job_key="third-0123456789"))


async def test_a_released_host_is_free_for_the_next_job(pool: Bench) -> None:
    nodes = [await pool.create(a_tag(rank=rank)) for rank in range(2)]
    await pool.provider.terminate(nodes[0])
    assert (await pool.create(a_tag(job_id="next", job_key="next-0123456789"))).port == nodes[0].port


async def test_only_the_holder_gives_a_host_back(pool: Bench) -> None:
    first = await pool.create()
    await pool.provider.terminate(first)
    second = await pool.create(a_tag(generation=2))
    await pool.provider.terminate(first)
    assert second.port == first.port
    assert (await pool.provider.describe(second)).state == NodeState.RUNNING


async def test_whoever_comes_late_to_a_released_task_starts_nothing(pool: Bench) -> None:
    node = await pool.create()
    await pool.start(node, "sleep 600")
    async with pool.connected(node) as connection:
        await pool.provider.terminate(node)
        task = NodeTask(connection, a_tag().job_key, a_tag().task_index)
        with pytest.raises(TaskClosed):
            await task.ensure(1, Commands(None, "sleep 600", {}))


async def test_a_host_key_is_pinned_at_first_use_and_another_one_is_refused(pool: Bench) -> None:
    node = await pool.create()
    host = next(each for each in pool.hosts if each.port == node.port)
    host.stop()
    host.new_host_keys("ed25519")
    host.start()
    assert (await pool.provider.describe(node)).state == NodeState.GONE
    with pytest.raises(HostKeyChanged):
        async with pool.connected(node):
            pass


async def test_a_host_that_cannot_be_reached_is_passed_over_and_never_judged_gone(pool: Bench) -> None:
    node = await pool.create()
    host = next(each for each in pool.hosts if each.port == node.port)
    host.stop()
    report = await pool.provider.describe(node)
    assert report.state == NodeState.RUNNING
    assert "cannot be reached" in report.reason
    with pytest.raises(ProviderUnavailable):
        await pool.provider.terminate(node)
    other = await pool.create(a_tag(job_id="other", job_key="other-0123456789"))
    assert other.port != node.port


async def test_a_host_that_answers_nonsense_is_never_judged_gone_nor_given_back(pool: Bench) -> None:
    node = await pool.create()
    host = next(each for each in pool.hosts if each.port == node.port)
    claim = host.home / ".towline" / "claim" / "tag"
    claim.write_text("{ nonsense")
    report = await pool.provider.describe(node)
    assert report.state == NodeState.RUNNING
    with pytest.raises(ProviderUnavailable):
        await pool.provider.terminate(node)
    assert claim.exists()


async def test_a_login_shell_that_prints_a_banner_changes_nothing(pool: Bench) -> None:
    for host in pool.hosts:
        (host.home / ".bashrc").write_text("echo 'Welcome to the lab!'; echo '{\"owner\": \"me\"}'\n")
    node = await pool.create()
    assert [each.tag for each in await pool.provider.list(OWNER)] == [a_tag()]
    await pool.provider.terminate(node)
    assert await pool.provider.list(OWNER) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lab: 7", "lab: must be a mapping"),
        ("lab: {user: me, identity_file: k}", r"lab\.hosts: must be a list"),
        ("lab: {user: me, identity_file: k, hosts: [1.2.3.4], extra: 1}", "lab: unknown key extra"),
        ("lab: {identity_file: k, hosts: [1.2.3.4]}", r"lab\.hosts\[0\]: user is missing"),
        ("lab: {user: me, identity_file: k, hosts: [{ip: a, port: 0}]}", r"port: must be a port"),
        ("lab: {user: me, identity_file: k, hosts: [a, a]}", "is named twice"),
        ("lab: [", "ssh_node_pools.yaml:2: YAML"),
        ("lab: {}\nlab: {}", "given twice"),
    ],
)
def test_errors_in_the_pools_file_name_the_file_and_the_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "ssh_node_pools.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        load_pools(path)


async def test_no_pools_at_all_is_said_with_the_file_to_write(pool: Bench) -> None:
    (pool.home / "ssh_node_pools.yaml").unlink()
    with pytest.raises(PrecheckFailed, match="no pool lab in .*ssh_node_pools.yaml; pools there: none"):
        await pool.provider.offers(pool.request)
    assert not (await pool.provider.check())[0].usable


async def test_an_unreachable_pool_says_so_in_check(pool: Bench) -> None:
    for host in pool.hosts:
        host.stop()
    [line] = await pool.provider.check()
    assert not line.usable
    assert "2 unreachable" in line.detail
    with pytest.raises((ConnectionLost, NoCapacity)):
        await pool.create()
