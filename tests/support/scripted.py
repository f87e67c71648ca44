"""Activities that end as a test's script says, with the same contract as the real ones: for tests of the workflow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from towline.contract import (
    Activity,
    AttemptRecord,
    AttemptStatus,
    Cause,
    Failure,
    Ledger,
    Node,
    ProvisionInput,
    ProvisionResult,
    ReleaseInput,
    RunTaskFailure,
    RunTaskHeartbeat,
    RunTaskInput,
    RunTaskResult,
    StopTaskInput,
    StopTaskResult,
    TailLogsInput,
    WorkerSettings,
    from_json,
    to_json,
)
from towline.ledger import merge, record

NOW = "2026-01-01T00:00:00+00:00"
AN_HOUR_LATER = "2026-01-01T01:00:00+00:00"


@dataclass(frozen=True)
class Ends:
    """How one activity attempt ends. `kind` is "exit", "setup", "lost", "preempted", "reboot", "rule",
    "shutdown" (a worker
    that stops), "core_shutdown" (the engine's own, without an account), "hang" (until cancelled) or "bug"."""

    kind: str
    code: int = 0
    slow: bool = False  # the attempt took an hour, so that no pause follows it


OK = Ends("exit", 0)
FAIL = Ends("exit", 1)
FAIL_SETUP = Ends("setup", 2)
LOST = Ends("lost")
HANG = Ends("hang")


@dataclass
class Script:
    """What happens, per task index, and what was seen. `starts` lists (task, attempt) of every attempt begun."""

    ends: dict[int, list[Ends]] = field(default_factory=dict)
    provision_errors: list[ApplicationError] = field(default_factory=list)
    provision_hangs: bool = False
    provision_fails_when_cancelled: bool = False
    release_failures: int = 0
    tail_hangs: bool = False
    stop_fails: bool = False
    tail_fails: bool = False
    settings: WorkerSettings = field(default_factory=lambda: WorkerSettings(search_attributes=False))
    starts: list[tuple[int, int]] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    alive: dict[str, Node] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    releases: list[ReleaseInput] = field(default_factory=list)
    stops: list[StopTaskInput] = field(default_factory=list)
    run_inputs: list[RunTaskInput] = field(default_factory=list)
    reached: dict[str, asyncio.Event] = field(default_factory=dict)

    def event(self, name: str) -> asyncio.Event:
        """Set when the activity `name` has been entered."""
        return self.reached.setdefault(name, asyncio.Event())


class ScriptedActivities:
    """The activities of a job on nodes that exist only in `script.alive`."""

    def __init__(self, script: Script, by_job: dict[str, Script] | None = None) -> None:
        self._default = script
        self._by_job = by_job or {}
        self.all: list[Callable[..., Any]] = [
            self.worker_settings,
            self.provision,
            self.run_task,
            self.tail_logs,
            self.stop_task,
            self.release,
        ]

    @property
    def script(self) -> Script:
        """The script of the job that this activity belongs to."""
        return self._by_job.get(activity.info().workflow_id or "", self._default)

    @activity.defn(name=Activity.WORKER_SETTINGS)
    async def worker_settings(self) -> WorkerSettings:
        return self.script.settings

    @activity.defn(name=Activity.PROVISION)
    async def provision(self, request: ProvisionInput) -> ProvisionResult:
        self.script.event("provision").set()
        self.script.closed.discard(request.task_index)
        if self.script.provision_errors:
            raise self.script.provision_errors.pop(0)
        if self.script.provision_fails_when_cancelled:
            with contextlib.suppress(asyncio.CancelledError):
                await _until_cancelled()
            raise ApplicationError("no capacity", type=Failure.NO_CAPACITY)
        if self.script.provision_hangs:
            await _until_cancelled()
        kept = {node.rank: node for node in request.keep}
        nodes = [kept.get(rank) or self._create(request, rank) for rank in range(request.num_nodes)]
        return ProvisionResult(nodes)

    def _create(self, request: ProvisionInput, rank: int) -> Node:
        node_id = f"n{request.task_index}-{request.generation}-{rank}"
        node = Node(node_id, rank, "scripted", "127.0.0.1", 22, "me")
        if node_id not in self.script.created:
            self.script.created.append(node_id)
        self.script.alive[node_id] = node
        return node

    @activity.defn(name=Activity.RUN_TASK)
    async def run_task(self, request: RunTaskInput) -> RunTaskResult:
        script = self.script
        if activity.info().attempt == 1:
            script.run_inputs.append(request)
        details = activity.info().heartbeat_details
        earlier = from_json(RunTaskHeartbeat, details[0]) if details else None
        ledger = merge(request.ledger, earlier.ledger if earlier else None)
        attempt = ledger.last_attempt + 1
        ends = script.ends.get(request.task_index, [])
        end = ends.pop(0) if ends else OK
        if (request.task_index, attempt) not in script.starts:
            script.starts.append((request.task_index, attempt))
        _beat(request, attempt, ledger)
        script.event("run_task").set()
        if end.kind == "hang":
            await _until_cancelled()
        return self._end(request, end, attempt, ledger)

    def _end(self, request: RunTaskInput, end: Ends, attempt: int, ledger: Ledger) -> RunTaskResult:
        if end.kind == "bug":
            raise ValueError("a bug in an activity")
        if end.kind == "core_shutdown":
            raise ApplicationError("Worker is shutting down", type="WorkerShutdown")
        if end.kind == "shutdown":
            raise ApplicationError("stops", to_json(RunTaskFailure(ledger)), type=Failure.WORKER_SHUTDOWN)
        ledger = record(ledger, _record(end, attempt))
        _beat(request, attempt, ledger)
        last = ledger.records[-1]
        if last.status == AttemptStatus.SUCCEEDED:
            self.script.closed.add(request.task_index)
            return RunTaskResult(ledger)
        lost = [node.node_id for node in request.nodes] if end.kind in ("lost", "preempted") else []
        for node_id in lost:
            self.script.alive.pop(node_id, None)
        details = to_json(RunTaskFailure(ledger, lost))
        raise ApplicationError(
            last.reason,
            details,
            type=_FAILURE.get(end.kind, last.status),
            non_retryable=ledger.failures > request.max_restarts,
        )

    @activity.defn(name=Activity.TAIL_LOGS)
    async def tail_logs(self, request: TailLogsInput) -> None:
        if self.script.tail_fails:
            raise RuntimeError("tail_logs fails for ever")
        while self.script.tail_hangs or request.task_index not in self.script.closed:
            activity.heartbeat()
            await asyncio.sleep(0.02)

    @activity.defn(name=Activity.STOP_TASK)
    async def stop_task(self, request: StopTaskInput) -> StopTaskResult:
        if self.script.stop_fails:
            raise ApplicationError("the node cannot be reached", type=Failure.PROVIDER_UNAVAILABLE, non_retryable=True)
        self.script.stops.append(request)
        self.script.closed.add(request.task_index)
        self.script.event("stop_task").set()
        ledger = request.ledger
        for index, attempt in self.script.starts:
            if index == request.task_index and attempt > ledger.last_attempt:
                ended = AttemptRecord(attempt, AttemptStatus.CANCELLED, 143, Cause.CANCELLED, "cancelled", NOW, NOW)
                ledger = record(ledger, ended)
        return StopTaskResult(ledger)

    @activity.defn(name=Activity.RELEASE)
    async def release(self, request: ReleaseInput) -> None:
        self.script.releases.append(request)
        self.script.event("release").set()
        if self.script.release_failures > 0:
            self.script.release_failures -= 1
            raise ApplicationError("the provider errs", type=Failure.PROVIDER_UNAVAILABLE)
        for node_id in list(self.script.alive):
            if node_id.startswith(f"n{request.task_index}-") and node_id not in request.keep:
                del self.script.alive[node_id]


_STATUS = {
    "setup": (AttemptStatus.FAILED_SETUP, Cause.SETUP),
    "lost": (AttemptStatus.NODE_LOST, Cause.NODE_LOST),
    "preempted": (AttemptStatus.NODE_LOST, Cause.PREEMPTED),
    "reboot": (AttemptStatus.NODE_LOST, Cause.REBOOT),
    "rule": (AttemptStatus.FAILED, Cause.EXIT_CODE_RULE),
}
_FAILURE = {
    "lost": Failure.NODE_LOST,
    "preempted": Failure.NODE_LOST,
    "reboot": Failure.NODE_LOST,
    "rule": Failure.EXIT_CODE_RULE,
}


def _record(end: Ends, attempt: int) -> AttemptRecord:
    if end.kind == "exit" and end.code == 0:
        return AttemptRecord(attempt, AttemptStatus.SUCCEEDED, 0, Cause.USER, "exit code 0", NOW, NOW)
    status, cause = _STATUS.get(end.kind, (AttemptStatus.FAILED, Cause.USER))
    code = end.code if end.kind in ("exit", "setup", "rule") else None
    words = f"exit code {code}" if code is not None else end.kind
    return AttemptRecord(attempt, status, code, cause, words, NOW, AN_HOUR_LATER if end.slow else NOW)


def _beat(request: RunTaskInput, attempt: int, ledger: Ledger) -> None:
    activity.heartbeat(to_json(RunTaskHeartbeat("run", attempt, ledger, [n.node_id for n in request.nodes])))


async def _until_cancelled() -> None:
    while True:
        activity.heartbeat(*activity.info().heartbeat_details)
        await asyncio.sleep(0.02)
