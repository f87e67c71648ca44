"""Many jobs on one worker process: what each costs, and how fast they start."""

from __future__ import annotations

import asyncio
import time

from benchmarks.bench import POOL, Bench, stamp, stamps
from benchmarks.figure import Figure
from benchmarks.moments import worker_process
from tests.support.system import until

_MIB = 1024 * 1024
_SUBMIT_AT_ONCE = 50


async def capacity(bench: Bench) -> list[Figure]:
    """Jobs that sleep, on one worker and one sshd: memory for each, and CPU while nothing happens."""
    figures = []
    for jobs in [50] if bench.quick else [500, 1000]:
        book = bench.path("capacity")
        worker = worker_process(bench)
        before = worker.memory_info().rss
        run = f"{stamp(book, 'start')}\nuntil [ -e {book}.go ]; do sleep 5; done"
        began = time.monotonic()
        ids = await _submit(bench, jobs, run)
        await until(lambda at=book, all_=jobs: len(stamps(at, "start")) >= all_, "all run", 1800)
        started = time.monotonic() - began
        await asyncio.sleep(10)  # what the starts left over is done then
        cpu, at = sum(worker.cpu_times()[:2]), time.monotonic()
        await asyncio.sleep(10 if bench.quick else 60)
        idle = 100 * (sum(worker.cpu_times()[:2]) - cpu) / (time.monotonic() - at)
        memory = (worker.memory_info().rss - before) / _MIB / jobs
        book.with_name(book.name + ".go").touch()
        documents = await asyncio.gather(*(bench.system.ended(job_id, 1800) for job_id in ids))
        disturbed = sum(
            document["status"] != "SUCCEEDED" or len(document["tasks"][0]["attempts"]) != 1 for document in documents
        )
        on = f"{jobs} jobs that sleep on one worker and one sshd"
        figures += [
            Figure("capacity, memory per job", "MiB", [memory], 0.5, on, beside={"all running after, s": started}),
            Figure("capacity, idle CPU", "% of a core", [idle], 10, on),
            Figure("capacity, jobs disturbed", "jobs", [disturbed], 0, on),
        ]
    return figures


async def burst(bench: Bench) -> list[Figure]:
    """Jobs submitted all at once: how many of them start each second."""
    jobs = bench.size(30, 300)
    book = bench.path("burst")
    began = time.time()
    ids = await _submit(bench, jobs, stamp(book, "start"))
    documents = await asyncio.gather(*(bench.system.ended(job_id, 1800) for job_id in ids))
    starts = stamps(book, "start")
    failed = sum(document["status"] != "SUCCEEDED" for document in documents)
    rate = len(starts) / (max(starts) - began)
    how = f"{jobs} jobs submitted at once, one worker, one sshd"
    return [
        Figure("burst, jobs started", "jobs/s", [rate], None, how),
        Figure("burst, jobs that failed", "jobs", [failed], 0, how),
        Figure("burst, starts beyond one for each job", "starts", [len(starts) - jobs], 0, how),
    ]


async def _submit(bench: Bench, jobs: int, run: str) -> list[str]:
    gate = asyncio.Semaphore(_SUBMIT_AT_ONCE)

    async def one() -> str:
        async with gate:
            return await bench.system.submit({"run": run, "resources": POOL})

    return list(await asyncio.gather(*(one() for _ in range(jobs))))
