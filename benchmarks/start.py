"""From nothing: the command line's own time, and a demo on a machine that has never run one."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.bench import Bench
from benchmarks.figure import Figure
from tests.support.system import ROOT


async def cold_start(bench: Bench) -> list[Figure]:
    """`towline --help`, `towline queue`, and the first line of a job in a fresh home with no stack running."""
    help_, python, queue = [], [], []
    for _ in range(max(3, bench.repeat)):
        help_.append(await _timed(bench, "-m", "towline", "--help"))
        python.append(await _timed(bench, "-c", "pass"))
        queue.append(await _timed(bench, "-m", "towline", "queue"))
    beside = {"python -c pass": sorted(python)[len(python) // 2]}
    return [
        Figure("towline --help", "s", help_, 0.3, "wall time of the command", beside=beside),
        Figure("towline queue", "s", queue, None, "wall time of the command, server on this machine", beside=beside),
        Figure(
            "cold start",
            "s",
            [await _first_line(bench)],
            None,
            "`towline launch examples/hello.yaml` to its first line",
        ),
    ]


async def _timed(bench: Bench, *arguments: str) -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *[bench.system.command()[0], *arguments],
        cwd=ROOT,
        env=bench.system.environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    return time.monotonic() - began


async def _first_line(bench: Bench) -> float:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "TOWLINE_"))}
    env = {**own, "TOWLINE_HOME": str(bench.path("cold-home"))}
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *bench.system.command("launch", "examples/hello.yaml"),
        cwd=ROOT,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        took = time.monotonic() - began
        await process.stdout.read()
        await process.wait()
    finally:
        down = await asyncio.create_subprocess_exec(
            *bench.system.command("down"), cwd=ROOT, env=env, stdout=asyncio.subprocess.DEVNULL
        )
        await down.wait()
    return took
