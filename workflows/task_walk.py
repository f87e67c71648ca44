"""One task, from its first node to its last released one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.workflow import ActivityHandle

from workflows import calls, run_end

with workflow.unsafe.imports_passed_through():
    from towline.contract import (
        AttemptStatus,
        Node,
        ProvisionInput,
        ProvisionResult,
        ReleaseInput,
        RunTaskInput,
        SealedSecret,
        StopTaskInput,
        StopTaskResult,
        TailLogsInput,
        WorkerSettings,
        from_json,
    )
    from towline.decision import Decision, Step, decide, restarts_left
    from towline.ledger import without_records
    from towline.pacing import interruption_pause_s, recovery_pause_s
    from towline.spec import TaskSpec
    from towline.state import JobState, NodeStanding, TaskState
    from towline.status import Status


_Result = TypeVar("_Result")
_TAILS_GIVE_UP_BEFORE = 10  # drain limits: a tail needs one, a worker that comes late needs a few


class TaskWalk:
    """Sees one task to its end: provision, run, restart, recover; and, whatever happens, stop and release.

    `later` are the tasks after the job's first one, if this is that.

    While attempts go on, a cancel ends them; once the nodes are being given back it is only noted, since that
    is what it
    asks for.
    """

    def __init__(
        self,
        state: JobState,
        index: int,
        spec: TaskSpec,
        settings: WorkerSettings,
        publish: Callable[[], None],
        later: list[TaskSpec] | None = None,
    ) -> None:
        self._job = state.job
        self._of = f"task {index + 1}/{len(state.tasks)} {state.tasks[index].name}"
        self._total = len(state.tasks)
        self._index = index
        self._task: TaskState = state.tasks[index]
        self._state = state
        self._spec = spec
        self._secrets = spec.sealed_secrets
        self._later = later or []
        self._resources: dict[str, Any] = spec.resources.to_input()
        self._settings = settings
        self._publish = publish
        self._tails: dict[str, ActivityHandle[Any]] = {}
        self._calls = 0
        self._interruptions = 0
        self._resumed = self._task.status != Status.PENDING
        self.cancelled = False
        self.to_be_continued = False

    async def run(self) -> None:
        """Returns when the task is in a final status and its nodes are confirmed gone; or, with `to_be_continued`, at a
        quiet point where the history has grown long: no attempt is being watched, and the state holds everything."""
        if not self._resumed:
            self._move(Status.STARTING)
        try:
            end = await self._noting_cancel(self._walk(), pass_on=True)
        except (asyncio.CancelledError, ActivityError) as error:
            end = _cut_short(error, self.cancelled)
        if end is None:
            self.to_be_continued = True
            return
        await self._noting_cancel(self._give_back(end), pass_on=False)

    async def _walk(self) -> Decision | None:
        """Provision and run until the decision is to finish; None when it is time to continue as new."""
        refusal = await self._provision()
        while refusal is None:
            decision = await self._run_once()
            self._note_lost(decision.lost)
            if decision.step is Step.FINISH:
                return decision
            refusal = await self._follow(decision)
            if refusal is None and workflow.info().is_continue_as_new_suggested():
                self._heed_cancel()
                return None
        return refusal

    async def _follow(self, decision: Decision) -> Decision | None:
        """Do what a decision other than FINISH asks for; another decision comes back when that ends the task."""
        if decision.step is Step.RESUME:
            self._move(Status.RUNNING, decision.reason)
            await self._pause(interruption_pause_s(self._interruptions), "pause before run_task is called again")
            return None
        if decision.step is Step.REPLACE:
            self._move(Status.RUNNING, decision.reason)
            await self._stop_and_drain()
            return await self._reprovision(keep=[])
        self._move(Status.RECOVERING, decision.reason)
        return await self._reprovision(keep=self._task.held)

    def _note_lost(self, node_ids: list[str]) -> None:
        """Nothing can be read from a lost node any more, nor stopped there."""
        self._task.mark(node_ids, NodeStanding.LOST)
        for node_id in node_ids:
            self._cancel_tail(node_id)

    async def _reprovision(self, keep: list[Node]) -> Decision | None:
        if len(keep) < self._spec.num_nodes:
            await self._release(keep=[node.node_id for node in keep])
        await self._pause(recovery_pause_s(self._task.ledger.records), "pause before the next attempt")
        return await self._provision()

    async def _provision(self) -> Decision | None:
        """Get the nodes that are missing; a decision comes back when there can be none."""
        self._heed_cancel()
        keep = self._task.held
        if len(keep) < self._spec.num_nodes:
            self._task.generation += 1
            request = ProvisionInput(
                job=self._job,
                task_index=self._index,
                task_name=self._task.name,
                num_nodes=self._spec.num_nodes,
                generation=self._task.generation,
                resources=self._resources,
                keep=keep,
                secrets=self._secrets_to_check(),
            )
            try:
                answer = await calls.provision(
                    request, self._settings, f"{self._of}: provision", calls.priority(self._spec.resources.priority)
                )
            except ActivityError as error:
                if self.cancelled or is_cancelled_exception(error):
                    raise
                return _provision_failed(error)
            result = from_json(ProvisionResult, answer)
            if result is None or len(result.nodes) != self._spec.num_nodes:
                text = "provision returned what is not its result"
                return Decision(Step.FINISH, text, Status.FAILED_CONTROLLER)
            self._task.provisioned(result.nodes)
        self._tail_new_nodes()
        self._move(Status.RUNNING)
        return None

    def _secrets_to_check(self) -> list[dict[str, SealedSecret]]:
        """The task's own; before the job's first node those of all tasks, so that what can never start never begins."""
        later = self._later if self._task.generation == 1 else []
        return [each for each in (self._secrets, *(task.sealed_secrets for task in later)) if each]

    async def _run_once(self) -> Decision:
        """One call of `run_task`: as many attempts as its RetryPolicy restarts."""
        self._heed_cancel()
        self._calls += 1
        before = self._task.ledger.last_attempt
        task, policy = self._task, self._task.policy
        left = restarts_left(policy, task.ledger)
        request = RunTaskInput(
            job=self._job,
            task_index=self._index,
            task_name=task.name,
            num_tasks=self._total,
            nodes=task.held,
            max_restarts=task.max_restarts,
            recoveries=task.recoveries,
            ledger=without_records(task.ledger),
            setup=self._spec.setup,
            run=self._spec.run,
            envs=dict(self._spec.envs),
            recover_on_exit_codes=list(self._spec.resources.job_recovery.recover_on_exit_codes),
            restart_nodes=task.restart_nodes,
            num_gpus_per_node=self._spec.resources.gpus_per_node,
            settings=self._settings,
            secrets=self._secrets,
            earlier_outputs=self._state.earlier_outputs(self._index),
        )
        in_place = 0 if task.restart_nodes == "replace" else left
        summary = f"{self._of}: attempt {before + 1}, restart {task.restarts}/{task.max_restarts}"
        try:
            end, ledger = run_end.of_result(await calls.run_task(request, self._calls, in_place, summary))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            end, ledger = run_end.of_error(error)
        task.take(ledger)
        self._state.bound_outputs(self._index)
        self._interruptions = 0 if task.ledger.last_attempt > before else self._interruptions + 1
        return decide(policy, task.ledger, end)

    async def _give_back(self, end: Decision) -> None:
        """Stop, drain, release; then the final status where it is not said yet."""
        if end.status is Status.CANCELLED:
            self._move(Status.CANCELLING, end.reason)
        elif end.status is not None:
            self._move(end.status, end.reason)
        if end.status is Status.SUCCEEDED:
            await self._drain()
        else:
            await self._stop_and_drain()
        await self._release(keep=[])
        if end.status is Status.CANCELLED:
            finished = self._task.ledger.records[-1:]
            done = bool(finished) and finished[0].status == AttemptStatus.SUCCEEDED
            status = Status.SUCCEEDED if done else Status.CANCELLED
            self._move(status, "" if done else end.reason)
        self._publish()

    async def _stop_and_drain(self) -> None:
        """End what runs on the nodes that are left, and let nothing start there any more; what it prints is kept."""
        if await self._stop():
            await self._drain()
        else:  # nodes that cannot be reached to be stopped cannot be read either
            self._cancel_tails()

    async def _stop(self) -> bool:
        """Whether everything on the nodes is known to have ended."""
        if not self._task.held:
            return True
        self._calls += 1
        request = StopTaskInput(
            job=self._job,
            task_index=self._index,
            nodes=self._task.held,
            ledger=without_records(self._task.ledger),
            settings=self._settings,
        )
        try:
            answer = await calls.stop_task(request, self._calls, f"{self._of}: stop")
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("stop_task gave up: %s", error.cause)
            return False
        result = from_json(StopTaskResult, answer)
        self._task.take(result.ledger if result else None)
        return True

    async def _drain(self) -> None:
        """Wait, bounded, until every tail has brought its node's last byte to the log store."""
        tails = list(self._tails.values())
        while not await self._drained(tails):
            workflow.logger.warning("no worker lived while logs were drained; waiting once more")
        self._cancel_tails()

    async def _drained(self, tails: list[ActivityHandle[Any]]) -> bool:
        """False when the time is up, and this comes so late that nobody can have been reading. A tail that gets nowhere
        gives up by itself; this longer limit is for one that cannot, as its node or its worker is out of reach."""
        patience = timedelta(seconds=self._settings.heartbeat_timeout_s)
        limit = timedelta(seconds=self._settings.drain_limit_s * _TAILS_GIVE_UP_BEFORE) + patience
        began = workflow.now()
        try:
            await workflow.wait_condition(lambda: all(tail.done() for tail in tails), timeout=limit)
        except TimeoutError:
            workflow.logger.warning("logs were not drained within %s", limit)
            return workflow.now() - began <= limit + patience
        return True

    async def _release(self, keep: list[str]) -> None:
        self._calls += 1
        nodes = [each.node for each in self._task.nodes if each.node.node_id not in keep]
        request = ReleaseInput(
            job=self._job,
            task_index=self._index,
            resources=self._resources,
            nodes=nodes,
            keep=keep,
        )
        lost = bool(nodes) and all(each.state == NodeStanding.LOST for each in self._task.nodes)
        try:
            await calls.release(request, self._settings, self._calls, f"{self._of}: release", lost=lost)
        except ActivityError as error:
            if is_cancelled_exception(error) or not lost:
                raise
            workflow.logger.warning("a lost node could not be given back; the sweep goes on with it: %s", error.cause)
        self._task.mark([node.node_id for node in nodes], NodeStanding.RELEASED)

    def _tail_new_nodes(self) -> None:
        for node in self._task.held:
            if node.node_id in self._tails:
                continue
            request = TailLogsInput(
                job=self._job,
                task_index=self._index,
                node=node,
                first_attempt=self._first_to_tail(),
                settings=self._settings,
                secrets=self._secrets,
            )
            self._tails[node.node_id] = calls.tail_logs(request, f"{self._of}: logs of node {node.rank}")

    def _cancel_tails(self) -> None:
        for node_id in list(self._tails):
            self._cancel_tail(node_id)

    def _first_to_tail(self) -> int:
        """The next attempt; in a resumed walk the one before it too, whose tail was left behind by the continue-as-new.
        That one may write on for a moment: both write the same bytes at the same offsets."""
        last = self._task.ledger.last_attempt
        return max(1, last) if self._resumed else last + 1

    def _cancel_tail(self, node_id: str) -> None:
        tail = self._tails.pop(node_id, None)
        if tail is None:
            return
        tail.add_done_callback(_outcome_is_known)
        tail.cancel()

    async def _pause(self, seconds: float, why: str) -> None:
        if seconds > 0:
            await workflow.sleep(timedelta(seconds=seconds), summary=f"{self._of}: {why}")

    async def _noting_cancel(self, work: Coroutine[Any, Any, _Result], *, pass_on: bool) -> _Result:
        """The result of `work`. A cancel is delivered once, here, and noted; `pass_on` says whether it cuts
        `work` short.

        It has to be noted: an activity that completes though it was asked to cancel swallows the cancel of the await.
        """
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.cancelled = True
            if pass_on:
                task.cancel()
            return await task

    def _heed_cancel(self) -> None:
        """Nothing new begins once a cancel has been noted."""
        if self.cancelled:
            raise asyncio.CancelledError

    def _move(self, status: Status, reason: str = "") -> None:
        self._task.move(status, reason, workflow.now().isoformat())
        self._publish()


def _outcome_is_known(tail: asyncio.Future[Any]) -> None:
    """Trouble with logs never changes a task's outcome."""
    if not tail.cancelled():
        tail.exception()


def _cut_short(error: asyncio.CancelledError | ActivityError, cancelled: bool) -> Decision:
    """The end of a walk that did not come to a decision: by a cancel, or by an activity that can never succeed. An
    activity that fails while it is asked to cancel is not tried again, so its failure means the cancel."""
    if cancelled or is_cancelled_exception(error):
        return Decision(Step.FINISH, "cancelled", Status.CANCELLED)
    cause = error.cause if isinstance(error, ActivityError) else error
    return Decision(Step.FINISH, f"an activity failed for good: {cause}", Status.FAILED_CONTROLLER)


def _provision_failed(error: ActivityError) -> Decision:
    cause = error.cause
    kind = cause.type if isinstance(cause, ApplicationError) else None
    status = Status(kind) if kind in (Status.FAILED_PRECHECKS, Status.FAILED_NO_RESOURCE) else Status.FAILED_CONTROLLER
    message = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return Decision(Step.FINISH, message, status)
