"""The state of a job, its transitions, and the `status` document made of it. Pure: times are given, not asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from towline.contract import AttemptRecord, Cause, JobRef, Ledger, Node
from towline.decision import Policy, restarts_used
from towline.ledger import merge
from towline.outputs import LARGEST_TOTAL, output_variables, size_of
from towline.status import Status, job_status
from towline.text import shorten


class NodeStanding:
    """What a task knows of its node."""

    HELD = "held"
    LOST = "lost"
    RELEASED = "released"


@dataclass
class HeldNode:
    """A node of a task and how it stands."""

    node: Node
    state: str = NodeStanding.HELD


@dataclass
class TaskState:
    """One task. `ledger` is the exact account of its attempts, with the newest records; `omitted` counts the
    older ones,
    `omitted_recoveries` those of them that were followed by a recovery; `generation` counts provisions."""

    name: str
    max_restarts: int
    strategy: str
    restart_nodes: str
    status: str = Status.PENDING
    reason: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    ledger: Ledger = field(default_factory=Ledger)
    nodes: list[HeldNode] = field(default_factory=list)
    generation: int = 0
    omitted: int = 0
    omitted_recoveries: int = 0

    @property
    def policy(self) -> Policy:
        """What the user wants done when attempts end."""
        return Policy(self.max_restarts, self.strategy, self.restart_nodes)

    @property
    def restarts(self) -> int:
        """Restarts paid from the budget."""
        return restarts_used(self.policy, self.ledger)

    @property
    def recoveries(self) -> int:
        """Further attempts because of the infrastructure, or by the exit code rule."""
        return self.omitted_recoveries + _recovered(self.ledger.records)

    @property
    def held(self) -> list[Node]:
        """The nodes that are neither lost nor released, by rank."""
        held = [each.node for each in self.nodes if each.state == NodeStanding.HELD]
        return sorted(held, key=lambda node: node.rank)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last attempt that had one to report, once the task has ended."""
        if not Status(self.status).final or not self.ledger.records:
            return None
        return self.ledger.records[-1].exit_code

    @property
    def outputs(self) -> dict[str, str]:
        """What the task hands on to later ones: that of its last attempt, which succeeded."""
        return self.ledger.records[-1].outputs if self.ledger.records else {}

    def drop_outputs(self, why: str) -> None:
        """Hand on nothing."""
        last = self.ledger.records[-1]
        records = [*self.ledger.records[:-1], replace(last, outputs={}, reason=f"{last.reason}; {why}")]
        self.ledger = replace(self.ledger, records=records)

    def move(self, status: Status, reason: str, now: str) -> None:
        """Enter `status`; a final status is never left."""
        if Status(self.status).final:
            return
        self.status, self.reason = status, shorten(reason)
        if status is Status.STARTING and self.started_at is None:
            self.started_at = now
        if status.final:
            self.ended_at = now

    def take(self, ledger: Ledger | None) -> None:
        """Fold in what a call of `run_task` or `stop_task` says of the attempts."""
        self.ledger = merge(self.ledger, ledger)
        excess = len(self.ledger.records) - MOST_RECORDS_KEPT
        if excess > 0:
            self.omitted += excess
            self.omitted_recoveries += _recovered(self.ledger.records[:excess])
            self.ledger = replace(self.ledger, records=self.ledger.records[excess:])

    def provisioned(self, nodes: list[Node]) -> None:
        """The nodes the task now has; those of earlier generations are kept on the list only while they are held."""
        self.nodes = [HeldNode(node) for node in nodes]

    def mark(self, node_ids: list[str], state: str) -> None:
        """Say of some nodes how they stand."""
        for each in self.nodes:
            if each.node.node_id in node_ids and each.state == NodeStanding.HELD:
                each.state = state


MOST_RECORDS_KEPT = 500
_RECOVERED = frozenset({Cause.NODE_LOST, Cause.PREEMPTED, Cause.REBOOT, Cause.EXIT_CODE_RULE})


def _recovered(records: list[AttemptRecord]) -> int:
    return sum(each.cause in _RECOVERED for each in records)


@dataclass
class JobState:
    """All that a job knows; carried whole through a continue-as-new."""

    job: JobRef
    submitted_at: str
    tasks: list[TaskState]

    @property
    def status(self) -> Status:
        """The one rule: the status of the first task that is not SUCCEEDED, else SUCCEEDED."""
        return job_status(Status(task.status) for task in self.tasks)

    @property
    def current(self) -> int:
        """Index of the task that decides the job's status."""
        return next(
            (index for index, task in enumerate(self.tasks) if task.status != Status.SUCCEEDED),
            len(self.tasks) - 1,
        )

    @property
    def restarts(self) -> int:
        """Restarts of all tasks."""
        return sum(task.restarts for task in self.tasks)

    @property
    def recoveries(self) -> int:
        """Recoveries of all tasks."""
        return sum(task.recoveries for task in self.tasks)

    @property
    def reason(self) -> str:
        """The reason of the task that decides the job's status, naming it where there are several."""
        task = self.tasks[self.current]
        if not task.reason or len(self.tasks) == 1:
            return task.reason
        return shorten(f"task {self.current + 1}/{len(self.tasks)} {task.name}: {task.reason}")

    def earlier_outputs(self, index: int) -> dict[str, str]:
        """The environment variables with what the tasks before `index` hand on."""
        return output_variables((task.name, task.outputs) for task in self.tasks[:index])

    def bound_outputs(self, index: int) -> None:
        """Keep what all tasks hand on together below its limit: what of task `index` does not fit is not kept."""
        if sum(size_of(task.outputs) for task in self.tasks) > LARGEST_TOTAL:
            self.tasks[index].drop_outputs(f"its outputs are not kept: those of the job exceed {LARGEST_TOTAL} bytes")

    def cancel_pending(self, reason: str, now: str) -> None:
        """The tasks that have not begun never will."""
        for task in self.tasks:
            if task.status == Status.PENDING:
                task.move(Status.CANCELLED, reason, now)


def document(state: JobState, ended_at: str | None = None) -> dict[str, Any]:
    """The `status --json` document, as the query `status` returns it."""
    return {
        "job_id": state.job.job_id,
        "name": state.job.name,
        "status": str(state.status),
        "reason": state.reason,
        "submitted_at": state.submitted_at,
        "ended_at": ended_at,
        "web_ui_url": None,
        "tasks": [_task_document(index, task) for index, task in enumerate(state.tasks)],
    }


def _task_document(index: int, task: TaskState) -> dict[str, Any]:
    return {
        "index": index,
        "name": task.name,
        "status": str(task.status),
        "reason": task.reason,
        "exit_code": task.exit_code,
        "max_restarts_on_errors": task.max_restarts,
        "restarts": task.restarts,
        "recoveries": task.recoveries,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "outputs": task.outputs,
        "attempts": [attempt_document(each) for each in task.ledger.records],
        **({"attempts_omitted": task.omitted} if task.omitted else {}),
        "nodes": [_node_document(each) for each in task.nodes],
    }


def attempt_document(record: AttemptRecord) -> dict[str, Any]:
    """One entry of a task's `attempts`."""
    return {key: value for key, value in asdict(record).items() if key != "outputs"}


def _node_document(held: HeldNode) -> dict[str, Any]:
    node = held.node
    return {
        "node_id": node.node_id,
        "rank": node.rank,
        "provider": node.provider,
        "host": node.host,
        "port": node.port,
        "region": node.region,
        "instance_type": node.instance_type,
        "spot": node.spot,
        "hourly_cost": node.hourly_cost,
        "state": held.state,
    }
