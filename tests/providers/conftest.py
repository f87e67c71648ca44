"""The providers under one contract: `local`, and `ssh` on OpenSSH's own server."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.openssh import OpenSsh, open_ssh
from tests.support.system import end_nodes
from towline.contract import Node
from towline.providers.local import LocalProvider
from towline.providers.protocol import NodeTag, Provider, Request
from towline.providers.ssh_pool import SshPoolProvider
from towline.ssh.client import Connection, SshClient
from towline.supervision import Commands, NodeTask

OWNER = "default@cluster"


def a_tag(**changes: Any) -> NodeTag:
    """Whose a node is, in these tests."""
    known = {"owner": OWNER, "job_key": "job-0123456789", "job_id": "job", "task_index": 0, "rank": 0, "generation": 1}
    return NodeTag(**{**known, **changes})


@dataclass
class Bench:
    """A provider, what to ask of it, and how to look at its nodes."""

    provider: Provider
    request: Request
    home: Path
    hosts: list[OpenSsh]
    ssh: SshClient

    async def create(self, tag: NodeTag | None = None) -> Node:
        """A node from the provider's first offer."""
        offers = await self.provider.offers(self.request)
        return await self.provider.create(tag or a_tag(), self.request, offers[0])

    @asynccontextmanager
    async def connected(self, node: Node) -> AsyncIterator[Connection]:
        """A connection to the node."""
        async with self.ssh.connect(self.provider.access(node)) as connection:
            yield connection

    async def output(self, node: Node, command: str) -> str:
        """What a command prints on the node."""
        async with self.connected(node) as connection:
            return (await connection.run(command)).stdout.decode().strip()

    async def start(self, node: Node, run: str) -> None:
        """Start an attempt of the node's task there, as a job would."""
        tag = a_tag()
        async with self.connected(node) as connection:
            await NodeTask(connection, tag.job_key, tag.task_index).ensure(1, Commands(None, run, {}))


def write_pools(path: Path, *hosts: OpenSsh) -> None:
    """The pool `lab` of these hosts."""
    lines = [f"    - {{ip: 127.0.0.1, port: {each.port}, identity_file: {each.identity}}}" for each in hosts]
    path.write_text("\n".join(["lab:", f"  user: {getpass.getuser()}", "  hosts:", *lines]) + "\n")


@pytest_asyncio.fixture
async def local(tmp_path: Path) -> AsyncIterator[Bench]:
    yield Bench(LocalProvider(tmp_path / "home"), Request(), tmp_path / "home", [], SshClient())
    end_nodes(tmp_path / "home")


@pytest_asyncio.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        hosts = [stack.enter_context(open_ssh(tmp_path / f"host-{number}")) for number in range(2)]
        home = tmp_path / "home"
        home.mkdir()
        write_pools(home / "ssh_node_pools.yaml", *hosts)
        ssh = SshClient()
        provider = SshPoolProvider(home / "ssh_node_pools.yaml", home / "known_hosts", ssh)
        yield Bench(provider, Request(infra="ssh/lab"), home, hosts, ssh)


@pytest.fixture(params=["local", "pool"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Each provider in turn."""
    found: Bench = request.getfixturevalue(request.param)
    return found
