"""The activities of a job, bound to what a worker has: providers, SSH, log store, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity

from activities.nodes import NodeActivities
from activities.run_task import RunTaskActivity
from activities.stop_task import StopTaskActivity
from activities.tail_logs import TailLogsActivity
from towline.contract import Activity, WorkerSettings
from towline.log_store import LogStore
from towline.providers.registry import Providers
from towline.sealing import Opener
from towline.ssh.client import SshClient


class JobActivities:
    """All activities; `all` is what a worker registers."""

    def __init__(
        self,
        providers: Providers,
        ssh: SshClient,
        log_store: LogStore,
        settings: WorkerSettings,
        owner: str,
        opener: Opener,
    ) -> None:
        self._settings = settings
        nodes = NodeActivities(providers, owner, opener)
        self.all: list[Callable[..., Any]] = [
            self.worker_settings,
            nodes.provision,
            nodes.release,
            RunTaskActivity(providers, ssh, opener).run_task,
            StopTaskActivity(providers, ssh).stop_task,
            TailLogsActivity(providers, ssh, log_store, opener).tail_logs,
        ]

    @activity.defn(name=Activity.WORKER_SETTINGS)
    async def worker_settings(self) -> WorkerSettings:
        """What this worker's configuration says."""
        return self._settings
