"""From a printed line to a line on the screen: latency, throughput, and what it costs the worker."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path

from benchmarks.bench import POOL, Bench
from benchmarks.figure import Figure
from benchmarks.memory import PeakMemory
from benchmarks.moments import worker_process
from tests.support.system import ROOT, until

_MIB = 1024 * 1024


async def latency(bench: Bench) -> list[Figure]:
    """A line is printed on the node; it is on stdout of `towline logs`. With one job, and with many that print."""
    alone = await _delays(bench, others=0)
    many = bench.size(20, 100)
    crowded = await _delays(bench, others=many - 1)
    how = "line printed to line on stdout of `towline logs`, {}"
    return [
        Figure("log latency, median", "s", [statistics.median(alone)], 0.3, how.format("1 job")),
        Figure("log latency, 99 of 100", "s", [_p99(alone)], 1.0, how.format("1 job")),
        Figure("log latency, median", "s", [statistics.median(crowded)], 0.3, how.format(f"{many} jobs")),
        Figure("log latency, 99 of 100", "s", [_p99(crowded)], 1.0, how.format(f"{many} jobs")),
    ]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def _delays(bench: Bench, others: int) -> list[float]:
    """Seconds from each line's own time to its arrival; `others` print a line each second meanwhile."""
    go = bench.path("latency")
    chatter = f"until [ -e {go} ]; do date; sleep 1; done"
    ids = [await bench.system.submit({"run": chatter, "resources": POOL}) for _ in range(others)]
    for job_id in ids:
        log = await bench.system.log_path(job_id)
        await until(lambda at=log: at.exists() and at.stat().st_size > 0, "the others print", 180)
    lines = bench.size(60, 300)
    counted = f"i=0; while [ $i -lt {lines} ]; do date +%s.%N; sleep 0.05; i=$((i+1)); done"
    job_id = await bench.system.submit({"run": counted, "resources": POOL})
    delays = [arrived - float(line) async for line, arrived in _followed(bench, job_id) if line[:1].isdigit()]
    go.touch()
    await asyncio.gather(*(bench.system.ended(each, 180) for each in ids))
    return delays[len(delays) // 10 :]  # the first ones were printed before anyone followed


async def _followed(bench: Bench, job_id: str):  # type: ignore[no-untyped-def]
    process = await _follower(bench, job_id, asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async for line in process.stdout:
        yield line.decode().strip(), time.time()
    await process.wait()


async def _follower(bench: Bench, job_id: str, stdout: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *bench.system.command("logs", job_id),
        cwd=ROOT,
        env=bench.system.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def throughput(bench: Bench) -> list[Figure]:
    """A large file, printed by a task, through node, store and follower; beside it `ssh node cat`."""
    size = bench.size(50, 500) * _MIB
    source = await asyncio.to_thread(_text, bench.path("text"), size)
    cat = statistics.median([await bench.ssh_cat(source) for _ in range(3)])
    worker = worker_process(bench)
    rates, costs, peaks = [], [], []
    for _ in range(1 if bench.quick else min(bench.repeat, 3)):
        before, cpu = worker.memory_info().rss, sum(worker.cpu_times()[:2])
        go = bench.path("go")
        job_id = await bench.system.submit(
            {"run": f"until [ -e {go} ]; do sleep 0.05; done; cat {source}", "resources": POOL}
        )
        target = bench.path("followed")
        descriptor = os.open(target, os.O_CREAT | os.O_WRONLY)
        follower = await _follower(bench, job_id, descriptor)
        os.close(descriptor)
        log = await bench.system.log_path(job_id)
        await until(log.parent.exists, "the log begins")
        with PeakMemory(worker) as peak:
            go.touch()
            began = time.monotonic()
            await until(lambda at=target: at.stat().st_size >= size, "all of it is followed", 600)
            rates.append(size / _MIB / (time.monotonic() - began))
        await follower.wait()
        await bench.system.ended(job_id)
        costs.append((sum(worker.cpu_times()[:2]) - cpu) / (size / 1e9))
        peaks.append((peak.bytes - before) / _MIB)
    limit = size / _MIB / cat
    note = {"ssh node cat, MiB/s": limit}
    through = f"{size // _MIB} MiB through node, store and follower; the limit is half of `ssh node cat`"
    return [
        Figure("log throughput", "MiB/s", rates, 0.5 * limit, through, at_least=True, beside=note),
        Figure("log cost, worker CPU", "s/GB", costs, None, "CPU seconds of the worker for each GB"),
        Figure("log cost, worker memory", "MiB", peaks, 64, "peak above the memory before; flat, whatever the size"),
    ]


def _text(path: Path, size: int) -> Path:
    line = b"".join(b"step %06d loss 0.1234 accuracy 0.9876 learning rate 0.0001\n" % number for number in range(1000))
    with path.open("wb") as file:
        written = 0
        while written < size:
            written += file.write(line[: size - written])
    return path
