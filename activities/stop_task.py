"""`stop_task`: close a task on its nodes, end what runs of it, and read the account that the nodes give."""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.failures import failure
from activities.heartbeat import beating
from towline.attempting import user_ended
from towline.contract import (
    Activity,
    AttemptRecord,
    AttemptStatus,
    Cause,
    Failure,
    Ledger,
    Node,
    StopTaskInput,
    StopTaskResult,
)
from towline.errors import ConnectionLost, HostKeyChanged, TowlineError
from towline.ledger import record
from towline.providers.protocol import NodeState
from towline.providers.registry import Providers
from towline.ssh.client import SshClient
from towline.supervision import NodeAttempt, NodeTask
from towline.text import shorten

_PATIENCE_S = 30.0
_PAUSE_S = 1.0


class StopTaskActivity:
    """`stop_task`, bound to a worker's SSH client."""

    def __init__(self, providers: Providers, ssh: SshClient) -> None:
        self._providers = providers
        self._ssh = ssh

    @activity.defn(name=Activity.STOP_TASK)
    async def stop_task(self, request: StopTaskInput) -> StopTaskResult:
        """A node that is gone has nothing to stop. Final when a node that lives could not be reached for as long as
        this looked; the time in which no worker lived does not count."""
        async with beating(lambda: {"phase": "stopping", "nodes": [node.node_id for node in request.nodes]}):
            try:
                ledgers = await asyncio.gather(*(self._stop(request, node) for node in request.nodes))
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                raise failure(error, retry_bugs=True) from error
        return StopTaskResult(max(ledgers, key=lambda ledger: ledger.last_attempt, default=request.ledger))

    async def _stop(self, request: StopTaskInput, node: Node) -> Ledger:
        clock = asyncio.get_running_loop().time
        limit = clock() + request.settings.stop_grace_s + _PATIENCE_S
        while True:
            try:
                return await self._try_to_stop(request, node)
            except TowlineError as error:
                if clock() > limit:
                    text = shorten(f"node {node.node_id} could not be told to stop: {error}")
                    raise ApplicationError(text, type=Failure.PROVIDER_UNAVAILABLE, non_retryable=True) from error
            await asyncio.sleep(_PAUSE_S)

    async def _try_to_stop(self, request: StopTaskInput, node: Node) -> Ledger:
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
