"""Everything that crosses Temporal: names, and one dataclass per message.

A change here asks "what of the jobs in flight?". Rules: names are never reused or renamed; fields are only
added, with a
default, and never change their meaning; unknown fields are ignored, so that messages decode one version both ways.
All messages are plain JSON. Times are ISO 8601 UTC strings, durations are seconds, costs US dollars per hour.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

WORKFLOW_TYPE = "ManagedJob"
QUERY_STATUS = "status"
DEFAULT_TASK_QUEUE = "towline"


class Activity:
    """Names of activity types."""

    PROVISION = "provision"
    RUN_TASK = "run_task"
    TAIL_LOGS = "tail_logs"
    STOP_TASK = "stop_task"
    RELEASE = "release"
    WORKER_SETTINGS = "worker_settings"  # local: answers at once, from the worker's own configuration


class Failure:
    """Types of the ApplicationErrors that activities raise."""

    FAILED = "FAILED"
    FAILED_SETUP = "FAILED_SETUP"
    FAILED_PRECHECKS = "FAILED_PRECHECKS"
    FAILED_NO_RESOURCE = "FAILED_NO_RESOURCE"
    FAILED_CONTROLLER = "FAILED_CONTROLLER"
    CANCELLED = "CANCELLED"
    NODE_LOST = "NODE_LOST"
    EXIT_CODE_RULE = "EXIT_CODE_RULE"
    SUPERSEDED = "SUPERSEDED"
    WORKER_SHUTDOWN = "WORKER_SHUTDOWN"  # retryable: the worker stops, the task runs on
    NO_CAPACITY = "NO_CAPACITY"  # retryable: provision waits
    PROVIDER_UNAVAILABLE = "PROVIDER_UNAVAILABLE"  # retryable: provision and release ask again
    SECRET_UNREADABLE = "SECRET_UNREADABLE"  # of run_task: called again after a pause, until a worker has the key


NON_RETRYABLE = (
    Failure.FAILED_PRECHECKS,
    Failure.FAILED_NO_RESOURCE,
    Failure.FAILED_CONTROLLER,
    Failure.CANCELLED,
    Failure.NODE_LOST,
    Failure.EXIT_CODE_RULE,
    Failure.SUPERSEDED,
    Failure.SECRET_UNREADABLE,
)
"""`run_task`'s non-retryable error types: every failure of ours that is neither the user's code nor a worker's stop.
Never the engine's own (`TemporalTimeout:*`, `WorkerShutdown`): those re-attach."""


class SearchAttribute:
    """Names of the search attributes; the types are in SEARCH_ATTRIBUTE_TYPES."""

    STATUS = "TowlineStatus"
    NAME = "TowlineName"
    TASK = "TowlineTask"
    RESTARTS = "TowlineRestarts"
    RECOVERIES = "TowlineRecoveries"


SEARCH_ATTRIBUTE_TYPES = {
    SearchAttribute.STATUS: "Keyword",
    SearchAttribute.NAME: "Keyword",
    SearchAttribute.TASK: "Keyword",
    SearchAttribute.RESTARTS: "Int",
    SearchAttribute.RECOVERIES: "Int",
}


class AttemptStatus:
    """How one attempt stands; the words of the task statuses where they fit, and NODE_LOST."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    FAILED_SETUP = "FAILED_SETUP"
    CANCELLED = "CANCELLED"
    NODE_LOST = "NODE_LOST"


class Cause:
    """Who ended an attempt, and so which budget the next one is paid from."""

    USER = "user"  # run's exit code: spends a restart
    SETUP = "setup"  # setup's exit code: spends a restart
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"
    REBOOT = "reboot"
    EXIT_CODE_RULE = "exit_code_rule"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class JobRef:
    """A job as its nodes, logs and activities know it. `key` is `towline.naming.job_key(job_id, first run id)`: the
    one name used in paths and tags, safe for both and never the same for two jobs."""

    job_id: str
    key: str
    name: str


@dataclass(frozen=True)
class Node:
    """One VM held for a task. `host_key` is its public key in OpenSSH's format, without a comment; `hourly_cost` is
    null when unknown, never 0."""

    node_id: str
    rank: int
    provider: str
    host: str
    port: int
    user: str
    host_key: str = ""
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    spot: bool = False
    hourly_cost: float | None = None
    created_at: str | None = None


@dataclass(frozen=True)
class SealedSecret:
    """A secret's value, sealed for the workers: base64 of a libsodium sealed box of its UTF-8 text, and the id of the
    key that opens it."""

    sealed: str
    key: str


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt of a task that has ended. `outputs` are the values that it handed on, if it succeeded."""

    attempt: int
    status: str
    exit_code: int | None = None
    cause: str | None = None
    reason: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """The exact account of a task's attempts, carried by heartbeats, failures and results of `run_task`.

    `records` holds the attempts that ended since the activity was called, oldest first; `failures` counts the
    user's failures among *all* attempts of the task, also those before the call.
    """

    last_attempt: int = 0
    failures: int = 0
    records: list[AttemptRecord] = field(default_factory=list)


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker's configuration says; recorded in the history, since a workflow reads no environment.
    `search_attributes` is false where the server does not have ours: an upsert would then block the job for ever."""

    search_attributes: bool = True
    heartbeat_timeout_s: float = 30.0
    unreachable_limit_s: float = 1800.0
    stop_grace_s: float = 10.0
    drain_limit_s: float = 60.0


@dataclass(frozen=True)
class ProvisionInput:
    """Get the nodes of a task. `generation` counts provisions of this task from 1, so that a replacement is another
    node; `keep` are nodes already held that go on being used. `secrets` must be readable by the workers, or nothing is
    created: those of this task, and at the job's first those of the tasks after it too."""

    job: JobRef
    task_index: int
    task_name: str
    num_nodes: int
    generation: int
    resources: dict[str, Any]
    keep: list[Node] = field(default_factory=list)
    secrets: list[dict[str, SealedSecret]] = field(default_factory=list)


@dataclass(frozen=True)
class ProvisionResult:
    """All nodes of the task in the order of their ranks, those kept and those new."""

    nodes: list[Node]


@dataclass(frozen=True)
class RunTaskInput:
    """Run attempts of a task on its nodes. `ledger` is the account so far, with `records` empty; `earlier_outputs` are
    environment variables with what earlier tasks handed on."""

    job: JobRef
    task_index: int
    task_name: str
    num_tasks: int
    nodes: list[Node]
    max_restarts: int
    recoveries: int
    ledger: Ledger
    setup: str | None = None
    run: str | None = None
    envs: dict[str, str] = field(default_factory=dict)
    recover_on_exit_codes: list[int] = field(default_factory=list)
    restart_nodes: str = "keep"
    num_gpus_per_node: int = 0
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    secrets: dict[str, SealedSecret] = field(default_factory=dict)
    earlier_outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunTaskResult:
    """The task's last attempt succeeded."""

    ledger: Ledger


@dataclass(frozen=True)
class TailLogsInput:
    """Bring every attempt's output from one node to the log store, from attempt `first_attempt` on, until the task is
    closed there. What of it is a secret's value is masked."""

    job: JobRef
    task_index: int
    node: Node
    first_attempt: int
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    secrets: dict[str, SealedSecret] = field(default_factory=dict)


@dataclass(frozen=True)
class StopTaskInput:
    """End whatever runs of the task on its nodes: SIGTERM, grace, SIGKILL; and let nothing start afterwards."""

    job: JobRef
    task_index: int
    nodes: list[Node]
    ledger: Ledger
    settings: WorkerSettings = field(default_factory=WorkerSettings)


@dataclass(frozen=True)
class StopTaskResult:
    """The account as the nodes give it, the stopped attempt included."""

    ledger: Ledger


@dataclass(frozen=True)
class ReleaseInput:
    """Give back `nodes`, and every other node of the task that is found by its tag, except `keep` (node ids).
    `resources` says with which providers there may be any."""

    job: JobRef
    task_index: int
    resources: dict[str, Any]
    nodes: list[Node]
    keep: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunTaskFailure:
    """What the details of a failure of `run_task` hold beside the message: the account, and the ids of lost nodes."""

    ledger: Ledger
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunTaskHeartbeat:
    """What `run_task` shows while it runs, and what its next activity attempt starts from."""

    phase: str
    attempt: int
    ledger: Ledger
    nodes: list[str] = field(default_factory=list)
    started_at: str | None = None
    unreachable_since: str | None = None
    note: str = ""


@dataclass(frozen=True)
class TailLogsHeartbeat:
    """What `tail_logs` shows while it runs: `offset` bytes of the attempt's log are in the log store. At most 8 KiB."""

    attempt: int
    offset: int
    last_lines: list[str] = field(default_factory=list)
    note: str = ""


def to_json(message: Any) -> dict[str, Any]:
    """A message as a plain JSON object, for heartbeats and failure details."""
    return asdict(message)


_Message = TypeVar("_Message")


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
"""Made once for each kind: making one takes longer than a hundred messages."""


def from_json(kind: type[_Message], data: Any) -> _Message | None:
    """The message of `kind` in `data`, fields unknown here ignored; None when it is not one."""
    try:
        if kind not in _ADAPTERS:
            _ADAPTERS[kind] = TypeAdapter(kind)
        message: _Message = _ADAPTERS[kind].validate_python(data)
        return message
    except ValidationError:
        return None
