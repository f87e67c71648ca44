"""Workflows of type ManagedJob that do what a test's input says, and a worker of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from towline.config import Config
from towline.contract import WORKFLOW_TYPE, Activity
from towline.spec import JobSpec

STARTED = "2026-01-01T00:00:00+00:00"


def job(name: str = "stand-in", **does: str) -> JobSpec:
    """A job of one task; `does` tells the stand-in what to do, in the task's envs."""
    return JobSpec.parse({"name": name, "tasks": [{"name": "only", "run": "true", "envs": does}]})


def task_document(status: str = "RUNNING") -> dict[str, Any]:
    """A task of the status document, in its first attempt."""
    return {
        "index": 0,
        "name": "only",
        "status": status,
        "reason": "",
        "exit_code": None,
        "max_restarts_on_errors": 3,
        "restarts": 0,
        "recoveries": 0,
        "started_at": STARTED,
        "ended_at": None,
        "attempts": [],
        "nodes": [],
    }


def document(job_id: str = "", status: str = "RUNNING", reason: str = "") -> dict[str, Any]:
    """The status document of a job of one task."""
    return {
        "job_id": job_id,
        "name": "stand-in",
        "status": status,
        "reason": reason,
        "submitted_at": STARTED,
        "ended_at": None,
        "web_ui_url": None,
        "tasks": [task_document(status)],
    }


@workflow.defn(name=WORKFLOW_TYPE, sandboxed=False)
class StandInJob:
    """`DOES`: wait (the default), succeed, fail, break (its code raises) or beat (`run_task` heartbeats `BEAT`)."""

    def __init__(self) -> None:
        self._status, self._reason = "RUNNING", ""

    @workflow.run
    async def run(self, raw: Any = None) -> dict[str, Any]:
        envs = raw["tasks"][0].get("envs", {})
        does = envs.get("DOES", "wait")
        if does == "break" and Jobs.broken:
            raise ValueError("a bug of ours")
        if does == "fail":
            self._status, self._reason = "FAILED_SETUP", "exit code 7"
            raise ApplicationError(self._reason, type=self._status, non_retryable=True)
        if does == "beat":
            await workflow.execute_activity(
                Activity.RUN_TASK,
                envs["BEAT"],
                activity_id="0-run_task-1",
                start_to_close_timeout=timedelta(hours=1),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        if does == "wait":
            await workflow.wait_condition(lambda: False)
        self._status = "SUCCEEDED"
        return {"status": self._status}

    @workflow.query
    def status(self) -> dict[str, Any]:
        return document(workflow.info().workflow_id, self._status, self._reason)


@workflow.defn(name="SomethingElse", sandboxed=False)
class SomethingElse:
    """A workflow that is no job."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


class Beating:
    """`run_task` that shows what it is given and goes on; `shown` is set once it has."""

    def __init__(self) -> None:
        self.shown = asyncio.Event()

    @activity.defn(name=Activity.RUN_TASK)
    async def run_task(self, beat: str) -> None:
        activity.heartbeat(workflow_json(beat))
        self.shown.set()
        while True:
            await asyncio.sleep(0.2)
            activity.heartbeat(workflow_json(beat))


def workflow_json(text: str) -> Any:
    """A heartbeat's details, from the text that a job's envs can hold."""
    import json

    return json.loads(text)


class Jobs:
    """Workers of stand-in jobs."""

    broken = True

    def __init__(self, client: Client, config: Config) -> None:
        self.client = client
        self._config = config
        self.beating = Beating()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with Worker(
            self.client,
            task_queue=self._config.task_queue,
            workflows=[StandInJob, SomethingElse],
            activities=[self.beating.run_task],
            max_heartbeat_throttle_interval=timedelta(seconds=0.05),
            graceful_shutdown_timeout=timedelta(seconds=0),
        ):
            yield
