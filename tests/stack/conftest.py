"""A real Temporal dev server for the tests of the stack, and jobs that stand in for the real workflow."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.stack.stand_in import Jobs
from towline.client import JobClient
from towline.config import Config
from towline.embedded import temporal
from towline.server import prepare


@pytest.fixture(autouse=True)
def _no_configuration_of_the_caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TEMPORAL_", "TOWLINE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal()) as environment:
        await prepare(environment.client)
        yield environment.client


@pytest.fixture
def address(server: Client) -> str:
    return str(server.service_client.config.target_host)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    queue = f"queue-{uuid.uuid4().hex[:8]}"
    return Config.from_environment(
        {"TOWLINE_HOME": str(tmp_path / "home"), "TOWLINE_TASK_QUEUE": queue, "HOME": "/none"}
    )


@pytest.fixture
def jobs(server: Client, config: Config) -> Jobs:
    return Jobs(server, config)


@pytest.fixture
def client(server: Client, config: Config) -> JobClient:
    return JobClient(server, config)


@pytest.fixture
def homes(tmp_path: Path) -> Callable[[str], Config]:
    def home(name: str, **environment: str) -> Config:
        return Config.from_environment({"TOWLINE_HOME": str(tmp_path / name), "HOME": str(tmp_path), **environment})

    return home
