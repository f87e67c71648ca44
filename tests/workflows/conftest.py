"""A time-skipping Temporal server for all tests of the workflow, and jobs on scripted activities."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.support.scripted import Script, ScriptedActivities
from towline.contract import WORKFLOW_TYPE
from workflows.managed_job import ManagedJob


def beside_python(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed"
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def environment() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=beside_python("temporal-test-server")
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def dev_environment() -> AsyncIterator[WorkflowEnvironment]:
    """The real server, where the order of events is what counts: the test server loses workflow tasks when an
    activity is
    cancelled while it completes."""
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=beside_python("temporal")) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def short_history_environment() -> AsyncIterator[WorkflowEnvironment]:
    """A real server that suggests to continue as new after 60 events."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=beside_python("temporal"),
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"],
    ) as running:
        yield running


class Jobs:
    """Starts jobs on a worker of scripted activities."""

    def __init__(self, environment: WorkflowEnvironment) -> None:
        self.client = environment.client
        self._queue = f"queue-{uuid.uuid4().hex[:8]}"

    @asynccontextmanager
    async def worker(
        self, script: Script, by_job: dict[str, Script] | None = None, **options: Any
    ) -> AsyncIterator[None]:
        async with Worker(
            self.client,
            task_queue=self._queue,
            workflows=[ManagedJob],
            activities=ScriptedActivities(script, by_job).all,
            max_heartbeat_throttle_interval=timedelta(seconds=0.05),
            graceful_shutdown_timeout=timedelta(seconds=0),
            **options,
        ):
            yield

    async def start(self, *arguments: Any, job_id: str | None = None) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            WORKFLOW_TYPE,
            args=list(arguments),
            id=job_id or f"job-{uuid.uuid4().hex[:8]}",
            task_queue=self._queue,
        )


@pytest.fixture
def jobs(environment: WorkflowEnvironment) -> Jobs:
    return Jobs(environment)


@pytest.fixture
def dev_jobs(dev_environment: WorkflowEnvironment) -> Jobs:
    return Jobs(dev_environment)


@pytest.fixture
def short_history_jobs(short_history_environment: WorkflowEnvironment) -> Jobs:
    return Jobs(short_history_environment)
