"""`stop_task`: close a task on its nodes, end what runs of it, and read the account that the nodes give."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.failures import failure
from activities.heartbeat import beating
from towline.attempting import user_ended
from towline.contract import (
    Activity,
    AttemptRecord,
    AttemptStatus,
    Cause,
    Ledger,
    Node,
    StopTaskInput,
    StopTaskResult,
)
from towline.errors import ConnectionLost, HostKeyChanged
from towline.ledger import record
from towline.providers.protocol import NodeState
from towline.providers.registry import Providers
from towline.ssh.client import SshClient
from towline.supervision import NodeAttempt, NodeTask


class StopTaskActivity:
    """`stop_task`, bound to a worker's SSH client."""

    def __init__(self, providers: Providers, ssh: SshClient) -> None:
        self._providers = providers
        self._ssh = ssh

    @activity.defn(name=Activity.STOP_TASK)
    async def stop_task(self, request: StopTaskInput) -> StopTaskResult:
        """Retryable while a node that lives cannot be reached; a node that is gone has nothing to stop."""
        async with beating(lambda: {"phase": "stopping", "nodes": [node.node_id for node in request.nodes]}):
            try:
                ledgers = await asyncio.gather(*(self._stop(request, node) for node in request.nodes))
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                raise failure(error, retry_bugs=True) from error
        return StopTaskResult(max(ledgers, key=lambda ledger: ledger.last_attempt, default=request.ledger))

    async def _stop(self, request: StopTaskInput, node: Node) -> Ledger:
        provider = self._providers.get(node.provider)
        try:
            async with self._ssh.connect(provider.access(node)) as connection:
                task = NodeTask(connection, request.job.key, request.task_index)
                before = await task.attempts()
                await task.stop(request.settings.stop_grace_s)
                return _account(request.ledger, before, await task.attempts())
        except HostKeyChanged:
            return request.ledger  # another machine: nothing of ours is there
        except ConnectionLost:
            if (await provider.describe(node)).state == NodeState.GONE:
                return request.ledger
            raise


def _account(ledger: Ledger, before: list[NodeAttempt], after: list[NodeAttempt]) -> Ledger:
    """The attempts that the caller's account lacks. What still ran was ended by the cancel; what had ended, and all
    but the newest, was ended by itself."""
    running = {each.attempt for each in before if each.state == "running"}
    for each in after:
        if each.attempt > ledger.last_attempt:
            ended = _stopped(each) if each.attempt in running else user_ended(each)
            ledger = record(ledger, ended)
    return ledger


def _stopped(attempt: NodeAttempt) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt.attempt,
        status=AttemptStatus.CANCELLED,
        exit_code=attempt.exit_code,
        cause=Cause.CANCELLED,
        reason="cancelled",
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
    )
