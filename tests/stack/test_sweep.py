from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.stack.stand_in import job
from towline.client import JobClient
from towline.contract import Node
from towline.embedded import temporal
from towline.errors import ProviderUnavailable
from towline.providers.local import LocalProvider
from towline.providers.protocol import NodeTag, Offer, Request, TaggedNode
from towline.providers.registry import Providers
from towline.sweep import sweep


class Nodes:
    """A `local` provider, and what it holds for one owner."""

    def __init__(self, home: Path) -> None:
        self.owner = f"owner-{uuid.uuid4().hex[:8]}"
        self.local = LocalProvider(home)
        self.providers = Providers([self.local])

    async def create(self, job_id: str, job_key: str) -> Node:
        tag = NodeTag(self.owner, job_key, job_id, task_index=0, rank=0, generation=1)
        return await self.local.create(tag, Request(), Offer("local"))

    async def held(self) -> list[str]:
        return [tagged.node.node_id for tagged in await self.local.list(self.owner)]

    async def sweep_twice(self, client: Client, owner: str | None = None) -> None:
        suspects = await sweep(client, self.providers, owner or self.owner, set())
        await sweep(client, self.providers, owner or self.owner, suspects)


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    held = Nodes(tmp_path / "home")
    yield held
    for tagged in await held.local.list(None):
        await held.local.terminate(tagged.node)


async def test_the_nodes_of_a_terminated_job_are_ended_at_the_second_look(
    client: JobClient, server: Client, nodes: Nodes
) -> None:
    job_id = (await client.submit(job())).job_id
    node = await nodes.create(job_id, await client.log_key(job_id))
    await server.get_workflow_handle(job_id).terminate()
    suspects = await sweep(server, nodes.providers, nodes.owner, set())
    assert suspects == {node.node_id}
    assert await nodes.held() == [node.node_id]
    await sweep(server, nodes.providers, nodes.owner, suspects)
    assert await nodes.held() == []


async def test_the_nodes_of_a_job_that_runs_are_left_alone(client: JobClient, server: Client, nodes: Nodes) -> None:
    job_id = (await client.submit(job())).job_id
    node = await nodes.create(job_id, await client.log_key(job_id))
    await nodes.sweep_twice(server)
    assert await nodes.held() == [node.node_id]


async def test_the_nodes_of_a_job_nobody_knows_are_ended(server: Client, nodes: Nodes) -> None:
    await nodes.create("never-heard-of", "never-heard-of-0123456789")
    await nodes.sweep_twice(server)
    assert await nodes.held() == []


async def test_the_nodes_of_an_earlier_job_of_the_same_id_are_ended(
    client: JobClient, server: Client, nodes: Nodes
) -> None:
    job_id = (await client.submit(job())).job_id
    now = await nodes.create(job_id, await client.log_key(job_id))
    await nodes.create(job_id, "earlier-0123456789")
    await nodes.sweep_twice(server)
    assert await nodes.held() == [now.node_id]


async def test_the_nodes_of_another_owner_are_left_alone(server: Client, nodes: Nodes) -> None:
    node = await nodes.create("never-heard-of", "never-heard-of-0123456789")
    await nodes.sweep_twice(server, owner="somebody else")
    assert await nodes.held() == [node.node_id]


async def test_nothing_is_ended_while_the_server_is_away(nodes: Nodes) -> None:
    node = await nodes.create("any", "any-0123456789")
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        client = environment.client
    await nodes.sweep_twice(client)
    assert await nodes.held() == [node.node_id]


async def test_nothing_is_ended_when_the_namespace_is_not_there(address: str, nodes: Nodes) -> None:
    node = await nodes.create("any", "any-0123456789")
    await nodes.sweep_twice(await Client.connect(address, namespace="nowhere"))
    assert await nodes.held() == [node.node_id]


@pytest.mark.parametrize("error", [ProviderUnavailable("it does not answer"), OSError("a fault of ours")])
async def test_a_provider_in_trouble_keeps_no_other_from_being_swept(
    error: Exception, server: Client, nodes: Nodes
) -> None:
    await nodes.create("never-heard-of", "never-heard-of-0123456789")
    nodes.providers = Providers([InTrouble(error), nodes.local])  # type: ignore[list-item]
    await nodes.sweep_twice(server)
    assert await nodes.held() == []


class InTrouble:
    """A provider that cannot list its nodes."""

    name = "in-trouble"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def list(self, owner: str | None, job_key: str | None = None) -> list[TaggedNode]:
        raise self._error
