"""What every provider promises, on each of them."""

from __future__ import annotations

import asyncio

import pytest

from tests.providers.conftest import OWNER, Bench, a_tag
from tests.support.system import until
from towline.errors import PrecheckFailed
from towline.providers.protocol import NodeState, Request


async def test_the_same_tag_finds_the_same_node_and_another_gets_another(bench: Bench) -> None:
    first = await bench.create()
    again = await bench.create()
    other = await bench.create(a_tag(rank=1))
    assert (again.node_id, again.host, again.port) == (first.node_id, first.host, first.port)
    assert (other.host, other.port) != (first.host, first.port)


async def test_creates_of_one_tag_at_once_make_one_node(bench: Bench) -> None:
    nodes = await asyncio.gather(*(bench.create() for _ in range(5)))
    assert len({node.node_id for node in nodes}) == 1
    assert len(await bench.provider.list(OWNER)) == 1


async def test_a_node_is_reached_with_the_host_key_that_its_provider_knows(bench: Bench) -> None:
    node = await bench.create()
    assert node.host_key.startswith("ssh-")
    assert await bench.output(node, "echo hi; echo err >&2; exit 3") == "hi"


async def test_nodes_are_listed_by_owner_and_job_with_their_whole_tag(bench: Bench) -> None:
    await bench.create()
    await bench.create(a_tag(job_key="other-0123456789", job_id="other"))
    assert [each.tag for each in await bench.provider.list(OWNER, "job-0123456789")] == [a_tag()]
    assert {each.tag.job_id for each in await bench.provider.list(OWNER)} == {"job", "other"}
    assert await bench.provider.list("somebody@else") == []
    assert len(await bench.provider.list(None)) == 2


async def test_a_terminated_node_is_gone_and_terminating_it_again_is_fine(bench: Bench) -> None:
    node = await bench.create()
    assert (await bench.provider.describe(node)).state == NodeState.RUNNING
    await bench.provider.terminate(node)
    await bench.provider.terminate(node)
    assert (await bench.provider.describe(node)).state == NodeState.GONE
    assert await bench.provider.list(OWNER) == []


async def test_what_ran_on_a_node_is_gone_when_terminate_returns(bench: Bench) -> None:
    node = await bench.create()
    marker = bench.home / "alive"
    beat = f"while :; do date +%s%N > {marker}; sleep 0.05; done"
    await bench.start(node, f"setsid sh -c '{beat}' & trap '' TERM; {beat}")
    await until(marker.exists, "the task runs")
    await bench.provider.terminate(node)
    last = marker.read_text()
    await bench.create(a_tag(generation=2))  # takes longer than two beats
    assert marker.read_text() == last


async def test_a_replacement_after_termination_is_a_fresh_node(bench: Bench) -> None:
    first = await bench.create()
    await bench.provider.terminate(first)
    second = await bench.create(a_tag(generation=2))
    assert second.node_id != first.node_id
    assert (await bench.provider.describe(second)).state == NodeState.RUNNING
    assert (await bench.provider.describe(first)).state == NodeState.GONE


async def test_check_says_that_it_can_be_used(bench: Bench) -> None:
    assert [line.usable for line in await bench.provider.check()] == [True]


@pytest.mark.parametrize("infra", ["ssh/nowhere"])
async def test_a_request_that_can_never_be_met_is_refused_with_what_there_is(pool: Bench, infra: str) -> None:
    with pytest.raises(PrecheckFailed, match="no pool nowhere .* pools there: lab"):
        await pool.provider.offers(Request(infra=infra))
