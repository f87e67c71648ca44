"""The two servers on which the client's contract is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.asyncssh_server import InProcessServer, in_process_server
from tests.support.openssh import OpenSsh, open_ssh, openssh
from towline.ssh.client import SshClient

__all__ = ["openssh"]


@pytest.fixture(params=["in process", "OpenSSH"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenSsh | InProcessServer]:
    """A node that can be reached by SSH."""
    async with AsyncExitStack() as stack:
        if request.param == "OpenSSH":
            yield stack.enter_context(open_ssh(tmp_path / "node"))
        else:
            yield await stack.enter_async_context(in_process_server(tmp_path / "node"))


@pytest.fixture
def ssh() -> SshClient:
    """A client."""
    return SshClient()
