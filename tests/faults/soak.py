"""Random faults over many jobs, from a seed: `python -m tests.faults.soak --minutes 20 --seed 7` (or `make soak`).

Prints what was done to whom, and at last the four ledgers and the seed. The exit code is 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.cloud import Cloud, LocalMachines
from tests.support.oracles import processes_of_job
from tests.support.system import Server, System, WorkerProcess, running_system
from towline.contract import Cause
from towline.directory_log_store import DirectoryLogStore
from towline.log_store import LogKey
from towline.status import Status

CALM_LIMIT_S = 420
FAILURES = (0, 0, 1, 2, 3)
BUDGETS = (0, 1, 2, 3)


@dataclass
class Job:
    """A job of the soak: what its tasks are to do, and what was done to it."""

    job_id: str
    tasks: list[Plan]
    fate: str = ""  # "cancelled" or "terminated"


@dataclass
class Plan:
    """A task that fails so many times, and then succeeds; its diary is the run ledger."""

    diary: Path
    failures: int
    budget: int
    steps: int

    @property
    def spec(self) -> dict[str, Any]:
        """As YAML would have it. What it printed, and that it ended, is written down outside the node."""
        run = (
            f'say() {{ echo "$@"; echo "$@" >> {self.diary}.$TOWLINE_ATTEMPT; }}\n'
            f'echo "start $TOWLINE_ATTEMPT" >> {self.diary}\n'
            f"for n in $(seq {self.steps}); do say line $n; say same; sleep 0.2; done\n"
            f"code=0; [ $(grep -c '^end' {self.diary}) -ge {self.failures} ] || code=1\n"
            f'say last words >&2; echo "end $TOWLINE_ATTEMPT $code" >> {self.diary}; exit $code\n'
        )
        recovery = {"max_restarts_on_errors": self.budget}
        return {"run": run, "resources": {"use_spot": True, "job_recovery": recovery}}


@dataclass
class Soak:
    """Jobs and faults on one system."""

    system: System
    server: Server
    cloud: Cloud
    dice: random.Random
    directory: Path
    jobs: list[Job] = field(default_factory=list)
    workers: list[WorkerProcess] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    taken: list[tuple[str, int, float]] = field(default_factory=list)  # of which job and task a node went, and when

    async def storm(self, minutes: float, at_once: int) -> None:
        """Keep jobs coming, and do something to them every few seconds."""
        faults: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.kill_worker),
            (4, self.roll_worker),
            (3, self.freeze_worker),
            (8, self.preempt),
            (3, self.vanish),
            (2, self.server_away),
            (4, self.change_weather),
            (3, self.cancel),
            (1, self.terminate),
        ]
        end = time.monotonic() + 60 * minutes
        self.workers = [await self.system.worker() for _ in range(2)]
        said = 0.0
        while time.monotonic() < end:
            await self.fill(at_once)
            fault = self.dice.choices([each for _, each in faults], [weight for weight, _ in faults])[0]
            self.done[fault.__name__] += 1
            await fault()
            await asyncio.sleep(self.dice.uniform(0.5, 5))
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{(end - said) / 60:5.1f} min left; {len(self.jobs)} jobs; {dict(self.done)}", flush=True)

    async def fill(self, at_once: int) -> None:
        """As many jobs as are to run at once."""
        running = [each async for each in self.system.client.list_workflows('ExecutionStatus="Running"')]
        for _ in range(at_once - len(running)):
            number = len(self.jobs)
            plans = [self._plan(f"job-{number}-{index}") for index in range(self.dice.choice((1, 1, 2, 3)))]
            job_id = await self.system.submit(*(each.spec for each in plans), name=f"soak-{number}")
            self.jobs.append(Job(job_id, plans))

    def _plan(self, name: str) -> Plan:
        diary = self.directory / name
        diary.touch()
        dice = self.dice
        return Plan(diary, dice.choice(FAILURES), dice.choice(BUDGETS), dice.choice((1, 10, 50, 150)))

    async def kill_worker(self) -> None:
        """As by kill -9, or by the kernel."""
        await self._replace(signal.SIGKILL)

    async def roll_worker(self) -> None:
        """A deploy."""
        await self._replace(signal.SIGTERM)

    async def _replace(self, number: signal.Signals) -> None:
        worker = self.workers.pop(self.dice.randrange(len(self.workers)))
        worker.send(number)
        self.workers.append(await self.system.worker())

    async def freeze_worker(self) -> None:
        """Longer than its heartbeats are waited for, or not."""
        worker = self.dice.choice(self.workers)
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(self.dice.uniform(1, 8))
        worker.send(signal.SIGCONT)

    async def preempt(self) -> None:
        """A node vanishes, and the cloud says why."""
        self._take_away(preempted=True)

    async def vanish(self) -> None:
        """A node vanishes for no known reason."""
        self._take_away(preempted=False)

    def _take_away(self, *, preempted: bool) -> None:
        living = self.cloud.living()
        if not living:
            return
        node = self.dice.choice(living)
        self.cloud.end(node.node_id, preempted=preempted)
        LocalMachines(self.system.home).take_away(node.node_id)
        self.taken.append((node.tag.job_id, node.tag.task_index, time.time()))

    async def server_away(self) -> None:
        """Temporal dies, and comes back."""
        self.server.stop(self.dice.choice((signal.SIGKILL, signal.SIGTERM)))
        await asyncio.sleep(self.dice.uniform(1, 15))
        self.server.start()
        await self._server_answers()

    async def _server_answers(self) -> None:
        while True:
            try:
                await self.system.client.count_workflows()
            except Exception:  # noqa: BLE001 - whatever it says, it is not up yet
                await asyncio.sleep(0.5)
            else:
                return

    async def change_weather(self) -> None:
        """Slow, full, lying or failing, and sometimes fair."""
        dice = self.dice
        self.cloud.turns(
            create_s=dice.choice((0, 0, 1, 6)),
            list_lag_s=dice.choice((0, 0, 5)),
            creates_fail=dice.choice((0, 1, 3)),
            deletes_fail=dice.choice((0, 1, 3)),
            deletes_lie=dice.choice((0, 1)),
            no_capacity=dice.random() < 0.15,
        )

    async def cancel(self) -> None:
        """Somebody does not want a job any more."""
        job = self.dice.choice(self.jobs[-10:])
        if not job.fate and await self.system.jobs.cancel(job.job_id) == Status.CANCELLING:
            job.fate = "cancelled"

    async def terminate(self) -> None:
        """An operator cuts a job off."""
        from temporalio.service import RPCError

        job = self.dice.choice(self.jobs[-10:])
        if job.fate:
            return
        try:
            await self.system.client.get_workflow_handle(job.job_id).terminate("by an operator")
        except RPCError:
            return  # it has ended
        job.fate = "terminated"

    async def calm(self) -> list[dict[str, Any]]:
        """The storm is over: every job ends, and every node is given back."""
        self.cloud.turns(create_s=0, list_lag_s=0, creates_fail=0, deletes_fail=0, deletes_lie=0, no_capacity=False)
        waiting = [self.system.jobs.wait(job.job_id) for job in self.jobs]
        await asyncio.wait_for(asyncio.gather(*waiting), CALM_LIMIT_S)
        limit = time.monotonic() + 120
        while self.cloud.living() and time.monotonic() < limit:
            await asyncio.sleep(1)
        return [await self.system.jobs.status(job.job_id) for job in self.jobs]


class Ledgers:
    """What is found in the end; `lost` says each thing that is not as it must be."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self.lost: list[str] = []
        self.counts: Counter[str] = Counter()

    async def read(self, documents: list[dict[str, Any]]) -> None:
        """All four."""
        for job, document in zip(self._soak.jobs, documents, strict=True):
            self.counts[document["status"]] += 1
            self._status(job, document)
            if not document["tasks"] and job.fate:  # cut off before it could say anything of them
                started = any(plan.diary.read_text() for plan in job.tasks)
                self._unless(not started, job, "tells of no task, and one has started")
                continue
            for plan, task in zip(job.tasks, document["tasks"], strict=True):
                self._runs(job, plan, task)
                await self._logs(job, plan, task)
            key = await self._soak.system.jobs.log_key(job.job_id)
            self.lost += [f"{job.job_id}: still runs: {each}" for each in processes_of_job(key)]
        self._nodes()

    def _status(self, job: Job, document: dict[str, Any]) -> None:
        status = document["status"]
        if status == Status.CANCELLED:
            self._unless(job.fate != "", job, "is CANCELLED, and nobody asked for that")
        else:
            self._unless(status in (Status.SUCCEEDED, Status.FAILED), job, f"ended {status}: {document['reason']}")

    def _runs(self, job: Job, plan: Plan, task: dict[str, Any]) -> None:
        """The run ledger beside what the job says of its attempts."""
        entries = [line.split() for line in plan.diary.read_text().splitlines()]
        starts = Counter(int(each[1]) for each in entries if each[0] == "start")
        ends = {int(each[1]): int(each[2]) for each in entries if each[0] == "end"}
        self.counts["starts"] += starts.total()
        self._unless(all(times == 1 for times in starts.values()), job, f"an attempt was started twice: {starts}")
        if job.fate == "terminated" and task["status"] == Status.CANCELLED:
            return  # it cannot tell of what came after its last word
        told = {each["attempt"]: each for each in task["attempts"]}
        self._unless(set(starts) <= set(told), job, f"started {sorted(starts)}, told {sorted(told)}")
        failed = [each for each in told.values() if each["cause"] == Cause.USER and each["exit_code"] != 0]
        for each in told.values():
            if each["cause"] == Cause.USER:
                right = ends.get(each["attempt"]) == each["exit_code"]
                self._unless(right, job, f"attempt {each['attempt']} ended {ends}, told {each['exit_code']}")
        paid = min(len(failed), plan.budget)
        self._unless(task["restarts"] == paid, job, f"{len(failed)} failures, restarts {task['restarts']}")
        self._unless(len(failed) <= plan.budget + 1, job, f"{len(failed)} failures on a budget of {plan.budget}")
        if task["status"] == Status.FAILED:
            self._unless(len(failed) == plan.budget + 1, job, "FAILED before its budget was spent")
        if task["status"] == Status.SUCCEEDED:
            self._unless(0 in ends.values(), job, "SUCCEEDED without an attempt that did")
        self.counts["restarts"] += task["restarts"]
        self.counts["recoveries"] += task["recoveries"]

    async def _logs(self, job: Job, plan: Plan, task: dict[str, Any]) -> None:
        """Streamed bytes beside those that the task wrote down itself: the same, or, of an attempt that was cut off, no
        others."""
        for each in task["attempts"]:
            number = each["attempt"]
            file = plan.diary.with_name(f"{plan.diary.name}.{number}")
            printed = file.read_bytes() if file.exists() else b""
            kept = await self._soak.system.log(job.job_id, task["index"], number)
            self.counts["log bytes"] += len(kept)
            if each["cause"] == Cause.USER and not await self._cut(job, task["index"], each):
                self._unless(kept == printed, job, f"attempt {number}: {len(printed)} bytes printed, {len(kept)} kept")
            else:
                common = min(len(kept), len(printed))
                self._unless(kept[:common] == printed[:common], job, f"attempt {number}: other bytes than were printed")

    async def _cut(self, job: Job, task_index: int, attempt: dict[str, Any]) -> bool:
        """Whether the node went away with what no worker had read of the attempt, and the log does not claim to be
        complete. Such logs are counted, since there must be few."""
        began = datetime.fromisoformat(attempt["started_at"]).timestamp()
        of_task = [when for job_id, index, when in self._soak.taken if (job_id, index) == (job.job_id, task_index)]
        system = self._soak.system
        key = LogKey(await system.jobs.log_key(job.job_id), task_index, attempt["attempt"], rank=0)
        end = await DirectoryLogStore(system.config.log_store).end(key)
        cut = any(when > began for when in of_task) and not (end and end.complete)
        self.counts["logs cut by a lost node"] += cut
        return cut

    def _nodes(self) -> None:
        cloud = self._soak.cloud
        self.counts["nodes created"] = len(cloud.instances())
        self.lost += [f"node {each.node_id} of {each.tag.job_id} lives" for each in cloud.living()]
        self.lost += [f"two nodes at a time: {one} {other}" for one, other in cloud.double_nodes()]

    def _unless(self, right: bool, job: Job, text: str) -> None:
        if not right:
            self.lost.append(f"{job.job_id}: {text}")


async def soak(minutes: float, at_once: int, seed: int, directory: Path) -> bool:
    """Whether nothing was lost."""
    cloud_directory = directory / "cloud"
    server = Server(directory)
    server.start()
    try:
        async with running_system(directory, server) as system:
            system.worker_command = ["-m", "tests.support.cloud_worker"]
            system.extra_environment = {"FAULT_CLOUD": str(cloud_directory)}
            storm = Soak(system, server, Cloud(cloud_directory), random.Random(seed), directory)
            await storm.storm(minutes, at_once)
            ledgers = Ledgers(storm)
            await ledgers.read(await storm.calm())
    finally:
        server.stop()
    print(
        json.dumps({"seed": seed, "minutes": minutes, "jobs": len(storm.jobs), "faults": storm.done, **ledgers.counts})
    )
    print(f"lost: {len(ledgers.lost)}", *ledgers.lost, sep="\n  ")
    return not ledgers.lost


def main() -> int:
    """From the command line."""
    parser = argparse.ArgumentParser(description="Random faults over many jobs, from a seed.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=12, help="how many run at once")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="towline-soak-"))
    print(f"everything it leaves is in {directory}", flush=True)
    return 0 if asyncio.run(soak(options.minutes, options.jobs, seed, directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
