from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from towline import server
from towline.contract import SEARCH_ATTRIBUTE_TYPES
from towline.embedded import temporal
from towline.errors import ServerUnreachable, UsageError


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_port_where_nobody_listens_is_said_with_its_address_and_what_to_do() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ServerUnreachable, match=rf"{address}.*towline up"):
        await server.connect(address)


async def test_a_server_that_says_nothing_is_given_up_after_five_seconds(silent: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ServerUnreachable, match=silent):
        await server.connect(silent)
    assert time.monotonic() - begun < 8


async def test_temporals_own_configuration_decides_the_server(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    client = await server.connect()
    assert (client.service_client.config.target_host, client.namespace) == (address, "elsewhere")


async def test_a_certificate_that_is_not_there_is_a_fault_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", "/nowhere/cert.pem")
    with pytest.raises(UsageError, match="environment configuration"):
        await server.connect()


async def test_search_attributes_are_registered_on_a_bare_server_and_usable_at_once() -> None:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        client = environment.client
        assert await server.prepare(client) == []
        query = " AND ".join(f"{name} IS NOT NULL" for name in SEARCH_ATTRIBUTE_TYPES)
        assert [each async for each in client.list_workflows(query)] == []
        assert await server.prepare(client) == []


async def test_a_search_attribute_of_another_type_is_named() -> None:
    options = ["--search-attribute", "TowlineRestarts=Keyword"]
    path = temporal()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=path, dev_server_extra_args=options
    ) as it:
        (line,) = await server.prepare(it.client)
        assert "TowlineRestarts has another type than Int" in line


async def test_a_namespace_that_does_not_exist_is_a_fault_of_the_configuration(address: str) -> None:
    client = await Client.connect(address, namespace="nowhere")
    with pytest.raises(UsageError, match=r"nowhere.*TEMPORAL_NAMESPACE"):
        await server.prepare(client)


async def test_the_owner_names_namespace_and_cluster_and_is_the_same_for_every_worker(address: str) -> None:
    first, second = await server.connect(address), await server.connect(address)
    assert await server.owner(first) == await server.owner(second)
    assert (await server.owner(first)).startswith("default@")


async def test_the_owner_is_not_guessed_while_the_server_is_away() -> None:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        client = environment.client
    with pytest.raises(ServerUnreachable):
        await server.owner(client)
    with pytest.raises(ServerUnreachable):
        await server.prepare(client)


async def test_retention_is_set_without_touching_search_attributes(server_namespace: Client) -> None:
    await server.prepare(server_namespace)
    await server.set_retention(server_namespace, 30)
    request = DescribeNamespaceRequest(namespace=server_namespace.namespace)
    answer = await server_namespace.workflow_service.describe_namespace(request)
    assert answer.config.workflow_execution_retention_ttl.seconds == 30 * 86400
    assert await server.prepare(server_namespace) == []


@pytest.fixture
async def server_namespace() -> AsyncIterator[Client]:
    """A server of its own."""
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        yield environment.client
