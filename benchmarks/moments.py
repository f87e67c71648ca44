"""From one moment of a job to the next: restarts, tasks, ends, recoveries, re-attachment."""

from __future__ import annotations

import signal
import time

import psutil

from benchmarks.bench import POOL, Bench, stamp, stamps
from benchmarks.figure import Figure
from tests.support.system import until
from towline.status import Status

_BACKOFF_S = [1.0, 2.0, 4.0, 8.0, 16.0]
_HEARTBEAT_TIMEOUT_S = 30.0


async def restart(bench: Bench) -> list[Figure]:
    """The process exits with 1; the next attempt's first line, less the engine's backoff."""
    restarts = 2 if bench.quick else 4
    values: list[float] = []
    for _ in range(bench.repeat):
        book = bench.path("restart")
        run = f'{stamp(book, "start")}\n[ "$TOWLINE_ATTEMPT" -gt {restarts} ] && exit 0\n{stamp(book, "end")}\nexit 1'
        recovery = {"max_restarts_on_errors": restarts}
        await bench.system.run({"run": run, "resources": {**POOL, "job_recovery": recovery}})
        starts, ends = stamps(book, "start"), stamps(book, "end")
        gaps = zip(ends, starts[1:], _BACKOFF_S, strict=False)
        values += [start - end - backoff for end, start, backoff in gaps]
    ssh = await bench.ssh_true()
    how = "process exit 1 to the next attempt's first line, less Temporal's backoff of 1, 2, 4 ... s"
    return [Figure("restart in place", "s", values, 3 * ssh, how, beside={"ssh node true": ssh})]


async def task_to_task(bench: Bench) -> list[Figure]:
    """Exit 0 of a task to the first line of the next one, on local nodes."""
    values, provisions = [], []
    for _ in range(bench.repeat):
        book = bench.path("tasks")
        tasks = [{"run": f"{stamp(book, 'start')}\n{stamp(book, 'end')}"} for _ in range(3)]
        job_id = await bench.system.submit(*tasks)
        await bench.system.ended(job_id)
        starts, ends = stamps(book, "start"), stamps(book, "end")
        values += [start - end for end, start in zip(ends, starts[1:], strict=False)]
        provisions += await bench.provision_s(job_id)
    ssh, node = await bench.ssh_true(), sorted(provisions)[len(provisions) // 2]
    how = "exit 0 of task k to the first line of task k+1, local nodes"
    return [Figure("task to task", "s", values, node + 5 * ssh, how, beside={"node start": node, "ssh node true": ssh})]


async def detection(bench: Bench) -> list[Figure]:
    """The process exits; the query says that the task has ended."""
    values = []
    for _ in range(bench.repeat):
        book = bench.path("detection")
        go = book.with_suffix(".go")
        job_id = await bench.system.submit({"run": f"until [ -e {go} ]; do sleep 0.05; done\n{stamp(book, 'end')}"})
        handle = bench.system.client.get_workflow_handle(job_id)
        await bench.system.shows(job_id, lambda it: it["tasks"][0]["status"] == Status.RUNNING, "it runs")
        go.touch()
        while (await handle.query("status"))["tasks"][0]["status"] != Status.SUCCEEDED:
            pass
        values.append(time.time() - stamps(book, "end")[0])
        await bench.system.ended(job_id)
    return [Figure("detection of the end", "s", values, 0.5, "process exit to a final status in the query")]


async def recovery(bench: Bench) -> list[Figure]:
    """A local node is killed; the first line of the next attempt."""
    values, provisions = [], []
    for _ in range(bench.repeat):
        book = bench.path("recovery")
        run = f'{stamp(book, "start")}\n[ "$TOWLINE_ATTEMPT" = 2 ] || sleep 600'
        job_id = await bench.system.submit({"run": run})
        await until(lambda at=book: stamps(at, "start"), "the first attempt runs")
        [node] = (await bench.system.cli("nodes", "--json")).json
        killed = time.time()
        await bench.system.cli("nodes", "preempt", node["node_id"])
        await bench.system.ended(job_id)
        values.append(stamps(book, "start")[1] - killed)
        provisions += await bench.provision_s(job_id)
    node_start = sorted(provisions)[len(provisions) // 2]
    how = "node killed to the first line of the next attempt"
    return [Figure("recovery", "s", values, node_start + 5, how, beside={"node start": node_start})]


async def reattach(bench: Bench) -> list[Figure]:
    """The worker is killed with -9 and another one starts; the log store grows again."""
    values = []
    for _ in range(1 if bench.quick else min(bench.repeat, 3)):
        go = bench.path("reattach")
        job_id = await bench.system.submit({"run": f"until [ -e {go} ]; do echo on; sleep 0.05; done"})
        log = await bench.system.log_path(job_id)
        await until(lambda at=log: at.exists() and at.stat().st_size > 0, "the log is streamed")
        bench.system.workers[-1].send(signal.SIGKILL)
        killed, size = time.time(), log.stat().st_size
        await bench.system.worker()
        await until(lambda at=log, before=size: at.stat().st_size > before, "it is streamed again", 120)
        values.append(time.time() - killed)
        go.touch()
        await bench.system.ended(job_id)
    how = f"worker killed to its successor's first streamed byte; heartbeat timeout {_HEARTBEAT_TIMEOUT_S:.0f} s"
    return [Figure("re-attach", "s", values, _HEARTBEAT_TIMEOUT_S + 5, how)]


def worker_process(bench: Bench) -> psutil.Process:
    """The worker that is running now."""
    return psutil.Process(bench.system.workers[-1].process.pid)
