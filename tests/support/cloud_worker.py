"""`worker.py` on a scripted cloud, and with faults of its own making: `python -m tests.support.cloud_worker`.

`FAULT_CLOUD` is the cloud's directory, `FAULT_HOST` a JSON `SshAccess` when all its instances are one host.
`FAULT_AT` names where in its work the process kills itself, once for each file `FAULT_ONCE`, or the bug that it has.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.support.cloud import Cloud, LocalMachines, Machines, OneHost, ScriptedCloud
from towline import worker
from towline.config import Config
from towline.directory_log_store import DirectoryLogStore
from towline.processes import leave
from towline.providers.protocol import SshAccess
from towline.providers.registry import Providers
from towline.ssh.client import SshClient, Stream
from towline.supervision import NodeTask


def _die() -> None:
    """As by kill -9; only the first time."""
    try:
        os.close(os.open(os.environ["FAULT_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(owner: type, name: str, *, before: bool = False, after: bool = False, when: Any = None) -> None:
    """Die before or after an asynchronous method has done its work."""
    original = getattr(owner, name)

    async def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        applies = when is None or when(*arguments)
        if before and applies:
            _die()
        result = await original(self, *arguments, **options)
        if after and applies:
            _die()
        return result

    setattr(owner, name, wrapped)


def _die_while_the_launch_is_on_its_way() -> None:
    """The request to start the attempt has been sent, and nobody waits for the answer."""
    ensure, send, launching = NodeTask.ensure, Stream.send, set[str]()

    async def noted_ensure(self: NodeTask, *arguments: Any) -> Any:
        launching.add("now")
        return await ensure(self, *arguments)

    def deadly_send(self: Stream, data: bytes) -> None:
        send(self, data)
        if launching:
            _die()

    NodeTask.ensure = noted_ensure  # type: ignore[method-assign]
    Stream.send = deadly_send  # type: ignore[method-assign]


def _is_later_task(tag: Any, *_: Any) -> bool:
    return bool(tag.task_index > 0)


def _die_with_the_create_accepted() -> None:
    """Die between the acceptance of a create and its answer."""
    original = Cloud.ask

    def ask(self: Cloud, tag: Any) -> Any:
        instance = original(self, tag)
        _die()
        return instance

    Cloud.ask = ask  # type: ignore[method-assign]


def _break_the_workflow() -> None:
    """In a module that the workflow sandbox takes as it is."""
    from towline.spec import JobSpec

    def broken(raw: Any) -> Any:
        raise RuntimeError("a bug of this deploy")

    JobSpec.parse = broken  # type: ignore[assignment, method-assign]


def _break_with_the_past() -> None:
    """Workflow code that asks for another activity than the history has."""
    from towline.contract import Activity

    Activity.PROVISION = "provision_otherwise"


def _block_the_loop() -> None:
    """A call that blocks for longer than the heartbeat timeout, at the first attempt of a task called `blocks`."""
    original = ScriptedCloud.describe

    async def describe(self: Any, node: Any) -> Any:
        try:
            os.close(os.open(os.environ["FAULT_ONCE"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return await original(self, node)
        time.sleep(5)  # noqa: ASYNC251 - the bug itself
        return await original(self, node)

    ScriptedCloud.describe = describe  # type: ignore[method-assign]


def _answer_nonsense() -> None:
    from activities.run_task import RunTaskActivity

    async def nonsense(self: Any, request: Any) -> Any:
        return {"not": "a result"}

    RunTaskActivity.run_task = _named(RunTaskActivity.run_task, nonsense)  # type: ignore[method-assign]


def _named(original: Any, replacement: Any) -> Any:
    from temporalio import activity

    return activity.defn(name=original.__temporal_activity_definition.name)(replacement)


def _tails_fail() -> None:
    from towline.tailing import Tailing

    async def broken(self: Any) -> None:
        raise RuntimeError("a bug in the tail")

    Tailing.run = broken  # type: ignore[method-assign]


FAULTS = {
    "before-launch": lambda: _wrap(NodeTask, "ensure", before=True),
    "launch-on-its-way": _die_while_the_launch_is_on_its_way,
    "after-launch": lambda: _wrap(NodeTask, "ensure", after=True),
    "after-the-end": lambda: _wrap(NodeTask, "watch", after=True),
    "before-stop": lambda: _wrap(NodeTask, "stop", before=True),
    "before-log-end": lambda: _wrap(DirectoryLogStore, "finish", before=True),
    "before-create": lambda: _wrap(ScriptedCloud, "create", before=True),
    "create-accepted": _die_with_the_create_accepted,
    "after-create": lambda: _wrap(ScriptedCloud, "create", after=True),
    "between-tasks": lambda: _wrap(ScriptedCloud, "create", before=True, when=_is_later_task),
    "before-delete": lambda: _wrap(ScriptedCloud, "terminate", before=True),
    "after-delete": lambda: _wrap(ScriptedCloud, "terminate", after=True),
    "broken-workflow": _break_the_workflow,
    "other-history": _break_with_the_past,
    "blocked-loop": _block_the_loop,
    "nonsense": _answer_nonsense,
    "broken-tail": _tails_fail,
}


def _providers(config: Config, ssh: SshClient) -> Providers:
    host = os.environ.get("FAULT_HOST")
    machines: Machines = OneHost(SshAccess(**json.loads(host)), ssh) if host else LocalMachines(config.home)
    return Providers([ScriptedCloud(Cloud(Path(os.environ["FAULT_CLOUD"])), machines)])


if __name__ == "__main__":
    fault = os.environ.get("FAULT_AT")
    if fault:
        FAULTS[fault]()
    leave(worker.main(providers=_providers))
