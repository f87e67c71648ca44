"""What a job costs the engine: events of its history, and the actions that Temporal Cloud would count."""

from __future__ import annotations

from benchmarks.bench import AS_DEPLOYED, Bench, stamp, stamps
from benchmarks.figure import Figure
from tests.support.system import until, with_budget

_ACTIVITIES_WHILE_RUNNING = 2  # run_task and tail_logs
_SENT_OF_TIMEOUT = 0.8  # the SDK sends a heartbeat at most each 0.8 heartbeat timeouts


async def engine(bench: Bench) -> list[Figure]:
    """Histories of jobs that differ by one task, one restart, one recovery."""
    one = await _events(bench, {"run": "true"})
    two = await _events(bench, {"run": "true"}, {"run": "true"})
    failing = await _events(bench, with_budget(1, run="[ $TOWLINE_ATTEMPT = 2 ]"))
    recovered = await _recovered(bench)
    timeout = float(AS_DEPLOYED["TOWLINE_HEARTBEAT_TIMEOUT"])
    figures = [
        Figure("events, job of one task", "events", [one], 25, "history of a job whose only task succeeds"),
        Figure("events, each further task", "events", [two - one], None, "a second task in the same job"),
        Figure(
            "events, each restart", "events", [failing - one], 0, "the attempt fails once and is restarted in place"
        ),
        Figure("events, each recovery", "events", [recovered - one], 12, "the node is taken away once"),
    ]
    for seconds in (10.0, timeout, 120.0):
        actions = _ACTIVITIES_WHILE_RUNNING * 3600 / (seconds * _SENT_OF_TIMEOUT)
        how = f"heartbeats of two activities, computed for a heartbeat timeout of {seconds:.0f} s"
        figures.append(Figure("actions, each hour of running", "actions", [actions], None, how))
    return figures


async def _events(bench: Bench, *tasks: dict[str, object]) -> int:
    job_id = await bench.system.submit(*tasks)
    await bench.system.ended(job_id)
    return len(await bench.events(job_id))


async def _recovered(bench: Bench) -> int:
    book = bench.path("events")
    run = f'{stamp(book, "start")}\n[ "$TOWLINE_ATTEMPT" = 2 ] || sleep 600'
    job_id = await bench.system.submit({"run": run})
    await until(lambda: stamps(book, "start"), "the first attempt runs")
    [node] = (await bench.system.cli("nodes", "--json")).json
    await bench.system.cli("nodes", "preempt", node["node_id"])
    await bench.system.ended(job_id)
    return len(await bench.events(job_id))
