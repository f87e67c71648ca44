from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from towline.embedded import temporal

Starts = Callable[..., Awaitable["RunningWorker"]]


class RunningWorker:
    """A worker process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process, ready: Path) -> None:
        self.process = process
        self.ready = ready
        self.said: list[str] = []

    async def until_it_says(self, text: str) -> str:
        """The first line with `text` in it."""
        assert self.process.stderr
        async for line in self.process.stderr:
            self.said.append(line.decode().rstrip())
            if text in self.said[-1]:
                return self.said[-1]
        raise AssertionError(f"{text!r} is not in {self.said}")

    async def end(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process.stderr
        self.said += (await self.process.stderr.read()).decode().splitlines()
        return await self.process.wait()


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Starts]:
    started: list[RunningWorker] = []

    async def starts(address: str, **environment: str) -> RunningWorker:
        ready = Path(environment.get("TOWLINE_WORKER_READY") or tmp_path / f"ready-{len(started)}")
        named = [] if "TOWLINE_WORKER_READY" in environment else ["--ready-file", str(ready)]
        queue = f"queue-{uuid.uuid4().hex[:8]}"
        inherited = {**os.environ, "TOWLINE_HOME": str(tmp_path / "home"), "TOWLINE_TASK_QUEUE": queue}
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "towline.worker", *named],
            env={**inherited, "TEMPORAL_ADDRESS": address, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(RunningWorker(process, ready))
        return started[-1]

    yield starts
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_says_that_it_works_and_ends_well_when_asked(
    number: signal.Signals, start: Starts, address: str
) -> None:
    worker = await start(address)
    await worker.until_it_says("working on task queue")
    worker.process.send_signal(number)
    assert await worker.end() == 0
    assert not worker.ready.exists()
    assert not any("Traceback" in line for line in worker.said)


async def test_the_ready_file_is_there_while_the_worker_polls(start: Starts, address: str, server: Client) -> None:
    worker = await start(address)
    await worker.until_it_says("working on task queue")
    while not worker.ready.exists():
        await asyncio.sleep(0.01)


async def test_the_ready_file_can_be_named_by_the_environment(start: Starts, address: str, tmp_path: Path) -> None:
    worker = await start(address, TOWLINE_WORKER_READY=str(tmp_path / "here"))
    await worker.until_it_says("working on task queue")
    while not (tmp_path / "here").exists():
        await asyncio.sleep(0.01)


async def test_a_worker_that_starts_before_its_server_waits_for_it(start: Starts) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = await start(f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in await worker.until_it_says("trying again")
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal(), port=port):
        await worker.until_it_says("working on task queue")
        worker.process.terminate()
        assert await worker.end() == 0
    assert sum("trying again" in line for line in worker.said) == 1


async def test_a_worker_that_waits_for_its_server_ends_at_once_when_asked(start: Starts) -> None:
    worker = await start("127.0.0.1:9")
    await worker.until_it_says("trying again")
    worker.process.terminate()
    assert await worker.end() == 0


async def test_a_worker_of_no_namespace_says_so_and_ends_with_the_code_for_usage(start: Starts, address: str) -> None:
    worker = await start(address, TEMPORAL_NAMESPACE="nowhere")
    assert await worker.end() == 2
    assert "TEMPORAL_NAMESPACE" in worker.said[-1]


async def test_a_bad_value_ends_the_worker_with_one_line(start: Starts, address: str) -> None:
    worker = await start(address, TOWLINE_STOP_GRACE="soon")
    assert await worker.end() == 2
    assert worker.said == ["error: TOWLINE_STOP_GRACE=soon: must be a positive number of seconds"]
