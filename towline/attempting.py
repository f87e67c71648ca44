"""Running attempts of a task on its node: start or re-attach, watch to the end, judge the end.

Nothing here kills or takes away anything: that is for `stop` and `release`. Nothing here counts restarts down: it only
keeps the account (`Ledger`) exact, and whoever calls decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from towline.contract import AttemptRecord, AttemptStatus, Cause, Ledger, Node, RunTaskInput, SealedSecret
from towline.environment import task_environment
from towline.errors import (
    AttemptSuperseded,
    ConnectionLost,
    HostKeyChanged,
    NodeCommandFailed,
    SecretUnreadable,
    TaskClosed,
    TowlineError,
)
from towline.ledger import record
from towline.masking import Mask
from towline.outputs import LARGEST_FILE, read_outputs
from towline.providers.protocol import NodeReport, NodeState, Provider
from towline.ssh.client import Connection, SshClient
from towline.supervision import Commands, NodeAttempt, NodeTask

LONGEST_RETRY_PAUSE_S = 5.0
_ENDED_BY_A_SIGNAL = frozenset({128 + 9, 128 + 15})
_KILLED = 128 + 9


@dataclass
class Progress:
    """Where the attempt stands, for the heartbeat. `unreachable_since` is an ISO 8601 time, or None."""

    attempt: int
    ledger: Ledger
    phase: str = "connecting"
    started_at: str | None = None
    unreachable_since: str | None = None
    note: str = ""


class NodeGone(Exception):
    """The node is lost, by the provider's judgement or after the limit; `cause` is a `contract.Cause`."""

    def __init__(self, cause: str, reason: str) -> None:
        self.cause = cause
        self.reason = reason
        super().__init__(reason)


class Attempting:
    """One call's work: the next attempt that is not yet in the account, from wherever it stands to its judged end."""

    def __init__(
        self,
        request: RunTaskInput,
        ssh: SshClient,
        provider: Provider,
        open_secrets: Callable[[Mapping[str, SealedSecret]], dict[str, str]],
        progress: Progress,
        report: Callable[[], None],
    ) -> None:
        self._request = request
        self._node: Node = request.nodes[0]
        self._ssh = ssh
        self._provider = provider
        self._open_secrets = open_secrets
        self._progress = progress
        self._report = report
        self._failed_connects = 0
        self._looking_since: float | None = None
        self._succeeded: AttemptRecord | None = None

    async def run(self) -> tuple[Ledger, bool]:
        """The account with the attempt that ended, and whether the node is lost. Raises AttemptSuperseded and
        TaskClosed when this call is out of date, SecretUnreadable when another worker has to go on."""
        try:
            ended, lost = await self._ended_attempt(), False
        except NodeGone as gone:
            ended, lost = self._succeeded or self._lost_attempt(gone), True
        return record(self._progress.ledger, ended), lost

    async def _ended_attempt(self) -> AttemptRecord:
        """Look again, whatever goes wrong on the way, until the node itself has said how the attempt ended: a
        node that is
        out of processes or disk, a provider that does not answer, a pool that is being edited say nothing about it."""
        while True:
            try:
                async with self._ssh.connect(self._provider.access(self._node)) as connection:
                    return await self._through(connection)
            except HostKeyChanged as error:
                raise NodeGone(Cause.NODE_LOST, f"node {self._node.node_id} lost: {error}") from error
            except (AttemptSuperseded, TaskClosed, SecretUnreadable):
                raise
            except TowlineError as error:
                await self._wait_unreachable(error)

    async def _through(self, connection: Connection) -> AttemptRecord:
        task = NodeTask(connection, self._request.job.key, self._request.task_index)
        attempt = await self._catch_up(task)
        self._reached()
        number = self._progress.attempt
        if attempt is None or attempt.state != "ended":
            attempt = await task.ensure(number, self._commands(number))
        self._progress.started_at = attempt.started_at
        if attempt.state == "running":
            self._show_phase(attempt.phase)
            attempt = await task.watch(number, self._show_phase)
        ended = await self._judge(connection, attempt)
        if ended.status == AttemptStatus.SUCCEEDED:
            self._succeeded = replace(ended, reason=f"{ended.reason}; its outputs were lost with the node")
            ended = await self._with_outputs(task, ended)
            with contextlib.suppress(ConnectionLost, NodeCommandFailed):  # the success stands, closed or not
                await task.close()  # nothing follows: whoever tails the logs may leave
        return ended

    async def _catch_up(self, task: NodeTask) -> NodeAttempt | None:
        """Take over what the node knows and the account does not: all but the newest attempt there ended in place, so
        by the user's failures. The newest is the one to attach to; None when there is none."""
        on_node = [each for each in await task.attempts() if each.attempt > self._progress.ledger.last_attempt]
        for each in on_node[:-1]:
            self._progress.ledger = record(self._progress.ledger, user_ended(each))
        self._progress.attempt = self._progress.ledger.last_attempt + 1
        self._progress.phase = "starting"
        return on_node[-1] if on_node else None

    def _commands(self, number: int) -> Commands:
        request, ledger = self._request, self._progress.ledger
        envs = task_environment(request, number, ledger.failures)
        return Commands(request.setup, request.run, envs, self._open_secrets(request.secrets))

    async def _with_outputs(self, task: NodeTask, ended: AttemptRecord) -> AttemptRecord:
        """The record of a success with what the task hands on; a secret is never part of that."""
        data = await task.output(ended.attempt, LARGEST_FILE + 1)
        secrets = Mask(self._open_secrets(self._request.secrets).values()) if data else Mask([])
        found = read_outputs(data, secrets.found_in)
        reason = f"{ended.reason}; {found.note}" if found.note else ended.reason
        return replace(ended, outputs=found.values, reason=reason)

    async def _judge(self, connection: Connection, attempt: NodeAttempt) -> AttemptRecord:
        """Who ended the attempt. A non-zero exit is held against the provider before it spends budget."""
        if attempt.state == "rebooted":
            return _record(attempt, AttemptStatus.NODE_LOST, Cause.REBOOT, "the node was rebooted")
        ended = user_ended(attempt)
        if ended.status == AttemptStatus.SUCCEEDED:
            return ended
        self._progress.phase = "judging"
        self._report()
        await self._confirm_node(connection, ended)
        if ended.exit_code in self._request.recover_on_exit_codes:
            reason = f"exit code {ended.exit_code} is in recover_on_exit_codes"
            return _record(attempt, AttemptStatus.FAILED, Cause.EXIT_CODE_RULE, reason)
        return ended

    async def _confirm_node(self, connection: Connection, ended: AttemptRecord) -> None:
        """Raises NodeGone or ConnectionLost unless the node outlived the attempt."""
        self._raise_if_gone(await self._provider_report())
        notice_s = self._provider.preemption_notice_s
        if self._node.spot and ended.exit_code in _ENDED_BY_A_SIGNAL and notice_s:
            try:
                await asyncio.wait_for(connection.wait_lost(), notice_s)
            except TimeoutError:
                self._raise_if_gone(await self._provider_report())
            else:
                raise ConnectionLost(f"the connection to node {self._node.node_id} broke after the attempt ended")

    async def _provider_report(self) -> NodeReport:
        while True:
            try:
                return await self._provider.describe(self._node)
            except TowlineError as error:
                self._progress.note = f"waiting for provider {self._node.provider}: {error}"
                self._report()
                await self._pause()

    async def _wait_unreachable(self, error: TowlineError) -> None:
        """The provider judges: raises NodeGone when it says so or when the limit has passed, else waits a little.

        The limit is on the time that somebody looked: an hour without any worker is no hour without an answer.
        """
        progress = self._progress
        progress.unreachable_since = progress.unreachable_since or datetime.now(UTC).isoformat()
        progress.note = str(error)
        self._report()
        try:
            self._raise_if_gone(await self._provider.describe(self._node))
        except TowlineError as unknown:
            progress.note = f"{error}; {unknown}"
        limit = self._request.settings.unreachable_limit_s
        self._looking_since = self._looking_since or time.monotonic()
        if time.monotonic() - self._looking_since > limit:
            reason = f"node {self._node.node_id} lost: unreachable for {limit:.0f} s ({error})"
            raise NodeGone(Cause.NODE_LOST, reason) from error
        await self._pause()

    async def _pause(self) -> None:
        """Grows from a quarter of a second, with jitter, so that many waiting tasks do not come back at once."""
        self._failed_connects += 1
        longest = min(0.25 * 2 ** min(self._failed_connects, 10), LONGEST_RETRY_PAUSE_S)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))

    def _raise_if_gone(self, report: NodeReport) -> None:
        if report.state == NodeState.GONE:
            cause = Cause.PREEMPTED if report.preempted else Cause.NODE_LOST
            raise NodeGone(cause, f"node {self._node.node_id} lost: {report.reason or 'gone'}")

    def _lost_attempt(self, gone: NodeGone) -> AttemptRecord:
        return AttemptRecord(
            attempt=self._progress.attempt,
            status=AttemptStatus.NODE_LOST,
            cause=gone.cause,
            reason=gone.reason,
            started_at=self._progress.started_at,
            ended_at=datetime.now(UTC).isoformat(),
        )

    def _reached(self) -> None:
        self._failed_connects = 0
        self._looking_since = None
        self._progress.unreachable_since = None
        self._progress.note = ""
        self._report()

    def _show_phase(self, phase: str) -> None:
        self._progress.phase = phase
        self._report()


def user_ended(attempt: NodeAttempt) -> AttemptRecord:
    """The record of an attempt that ended on a node that lives: by its exit code, the user's doing."""
    if attempt.state == "supervisor_killed":
        reason = "its supervisor was killed on the node (out of memory?)"
        return _record(attempt, AttemptStatus.FAILED, Cause.USER, reason, exit_code=_KILLED)
    if attempt.exit_code == 0:
        return _record(attempt, AttemptStatus.SUCCEEDED, Cause.USER, "exit code 0")
    if attempt.phase == "setup":
        reason = f"setup ended with exit code {attempt.exit_code}"
        return _record(attempt, AttemptStatus.FAILED_SETUP, Cause.SETUP, reason)
    return _record(attempt, AttemptStatus.FAILED, Cause.USER, f"exit code {attempt.exit_code}")


def _record(attempt: NodeAttempt, status: str, cause: str, reason: str, exit_code: int | None = None) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt.attempt,
        status=status,
        exit_code=attempt.exit_code if exit_code is None else exit_code,
        cause=cause,
        reason=reason,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at or datetime.now(UTC).isoformat(),
    )
