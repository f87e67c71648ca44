"""A dev server for all tests of a process that need one, and a system for each test; for the `conftest.py` of
whoever uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.system import Server, System, running_system


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"))
    running.start()
    yield running
    running.stop()


@pytest_asyncio.fixture
async def idle(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """A system without a worker, on a task queue of its own."""
    async with running_system(tmp_path_factory.mktemp("system"), server) as system:
        yield system


@pytest_asyncio.fixture
async def system(idle: System) -> System:
    """A system with one worker."""
    await idle.worker()
    return idle
