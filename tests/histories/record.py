"""Record one history per shape of job: `python -m tests.histories.record VERSION`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from tests.support.scripted import FAIL, FAIL_SETUP, HANG, LOST, OK, Ends, Script
from tests.workflows.conftest import Jobs, beside_python
from tests.workflows.test_managed_job import job
from towline.contract import Failure, WorkerSettings
from towline.server import prepare

_MACHINE = re.compile(r'"(identity|stackTrace)": "(?:[^"\\]|\\.)*"')  # names the machine and its paths
HERE = Path(__file__).parent

SHAPES: dict[str, tuple[dict[int, list[Ends]], list[Any]]] = {
    "success": ({}, [job(0)]),
    "pipeline": ({1: [FAIL, OK]}, [job(0, 1, 0)]),
    "restarts-then-failure": ({0: [FAIL, FAIL_SETUP]}, [job(1, 0)]),
    "recoveries": ({0: [LOST, Ends("reboot"), Ends("preempted"), OK]}, [job(0)]),
    "worker-shutdowns": ({0: [Ends("shutdown"), Ends("core_shutdown"), FAIL, OK]}, [job(1)]),
    "replace": ({0: [FAIL, OK]}, [job(1, restart_nodes="replace")]),
    "exit-code-rule": ({0: [Ends("rule", 42), OK]}, [job(0)]),
    "no-recovery": ({0: [LOST]}, [job(0, strategy="NO_RECOVERY")]),
    "refused": ({}, [{"tasks": [{"runn": "x"}]}]),
    "cancel-running": ({0: [HANG]}, [job(0, 0)]),
    "cancel-waiting-for-capacity": ({}, [job(0)]),
    "no-resource": ({}, [job(0)]),
}


async def main(version: str) -> None:
    """Run every shape on a real server and write its history."""
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=beside_python("temporal")) as environment:
        await prepare(environment.client)
        for name, (ends, arguments) in SHAPES.items():
            script = Script({task: list(each) for task, each in ends.items()}, settings=WorkerSettings())
            script.provision_hangs = name == "cancel-waiting-for-capacity"
            if name == "no-resource":
                error = ApplicationError("none to be had", type=Failure.FAILED_NO_RESOURCE, non_retryable=True)
                script.provision_errors = [error]
            await _record(Jobs(environment), script, name, arguments, HERE / f"{version}-{name}.json")


async def _record(jobs: Jobs, script: Script, name: str, arguments: list[Any], path: Path) -> None:
    async with jobs.worker(script):
        handle = await jobs.start(*arguments, job_id=name)
        if name.startswith("cancel"):
            await script.event("provision" if script.provision_hangs else "run_task").wait()
            await handle.cancel()
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()
        text = (await handle.fetch_history()).to_json()
        path.write_text(_MACHINE.sub(r'"\1": ""', text).replace(socket.gethostname(), "host") + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
