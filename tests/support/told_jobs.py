"""A job whose status is what a test says, with the calls of `towline.client.JobClient` that a follower needs."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from towline.errors import JobNotFound, ServerUnreachable
from towline.status import Status, job_status

KEY = "job-0123456789"
NOW = "2026-01-01T00:00:00+00:00"


class ToldJobs:
    """One job, "job", of some tasks. `unreachable`: while set, the server does not answer."""

    def __init__(self, tasks: int = 1, nodes: int = 1) -> None:
        self.unreachable = False
        self.looks = 0
        self._ended = asyncio.Event()
        self._tasks = [_task(index, nodes) for index in range(tasks)]

    async def status(self, job_id: str) -> dict[str, Any]:
        self.looks += 1
        if self.unreachable:
            raise ServerUnreachable("no Temporal server answers at nowhere")
        return self.document

    async def wait(self, job_id: str) -> Status:
        await self._ended.wait()
        return job_status(Status(task["status"]) for task in self._tasks)

    async def log_key(self, job_id: str) -> str:
        if job_id != "job":
            raise JobNotFound(f"no job {job_id}")
        return KEY

    @property
    def document(self) -> dict[str, Any]:
        return copy.deepcopy(
            {
                "job_id": "job",
                "name": "job",
                "status": str(job_status(Status(task["status"]) for task in self._tasks)),
                "reason": "",
                "submitted_at": NOW,
                "ended_at": NOW if self._ended.is_set() else None,
                "web_ui_url": None,
                "tasks": self._tasks,
            }
        )

    def task(self, index: int, status: str, reason: str = "") -> None:
        """Task `index` is now `status`."""
        self._tasks[index].update(status=status, reason=reason)

    def attempt(self, index: int, number: int, code: int | None = None, cause: str | None = None) -> None:
        """Attempt `number` runs, or has ended when `cause` is given."""
        known = [each for each in self._tasks[index]["attempts"] if each["attempt"] != number]
        status = "RUNNING" if cause is None else "SUCCEEDED" if code == 0 else "FAILED"
        reason = f"exit code {code}" if code is not None else ""
        ended = NOW if cause else None
        fields = {"status": status, "exit_code": code, "cause": cause, "reason": reason}
        known.append({"attempt": number, **fields, "started_at": NOW, "ended_at": ended})
        self._tasks[index]["attempts"] = known

    def end(self) -> None:
        """The job has ended."""
        self._ended.set()


def _task(index: int, nodes: int) -> dict[str, Any]:
    return {
        "index": index,
        "name": f"t{index}",
        "status": "PENDING",
        "reason": "",
        "exit_code": None,
        "max_restarts_on_errors": 1,
        "restarts": 0,
        "recoveries": 0,
        "started_at": None,
        "ended_at": None,
        "attempts": [],
        "nodes": [_node(index, rank) for rank in range(nodes)],
    }


def _node(index: int, rank: int) -> dict[str, Any]:
    fields = {"provider": "local", "host": "127.0.0.1", "port": 2200 + rank, "region": None, "instance_type": None}
    costs = {"spot": False, "hourly_cost": None}
    return {"node_id": f"n{index}{rank}", "rank": rank, **fields, **costs, "state": "held"}
