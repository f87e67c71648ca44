"""The worker: the one place where all parts are assembled."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from towline.config import Config
from towline.directory_log_store import DirectoryLogStore
from towline.errors import ServerUnreachable, UsageError
from towline.providers.local import LocalProvider
from towline.providers.registry import Providers
from towline.providers.ssh_pool import SshPoolProvider
from towline.server import connect, owner, prepare
from towline.ssh.client import SshClient
from towline.sweep import sweep_for_ever

_RECONNECT_PAUSE_S = 2.0
_LAG_LOOK_S = 1.0
_LAG_LIMIT_S = 1.0
_STICKY_LIMIT = timedelta(seconds=5)
_log = logging.getLogger("towline.worker")


def main(arguments: list[str] | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT; a second one ends it at once. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="worker.py", description="A Towline worker, in the foreground.")
    parser.add_argument("--ready-file", type=Path, help="touched once the worker polls")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        force=True,
    )
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)  # restarts and recoveries are no news here
    try:
        asyncio.run(run(Config.from_environment(), options.ready_file))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def providers_of(config: Config, ssh: SshClient) -> Providers:
    """The providers of this installation, in the order of preference."""
    pools = SshPoolProvider(config.home / "ssh_node_pools.yaml", config.home / "known_hosts", ssh)
    return Providers([LocalProvider(config.home), pools])


async def run(config: Config, ready_file: Path | None = None) -> None:
    """Connect, waiting for the server if need be, and work until a signal asks to stop."""
    config.make_home()
    stop = _stop_on_signals()
    client = await _connect(stop)
    if client is None:
        return
    async with building(config, client):
        _log.info("working on task queue %s of namespace %s", config.task_queue, client.namespace)
        if ready_file:
            ready_file.touch()
        await stop.wait()
        _log.info("stopping; tasks run on, the next worker goes on with them")


@asynccontextmanager
async def building(config: Config, client: Client) -> AsyncIterator[Worker]:
    """A running worker with everything it needs beside it."""
    from activities import JobActivities
    from workflows.managed_job import ManagedJob

    shortcomings = await prepare(client)
    for line in shortcomings:
        _log.warning("%s", line)
    settings = replace(config.settings, search_attributes=not shortcomings)
    ssh = SshClient()
    providers = providers_of(config, ssh)
    mine = await owner(client)
    job_activities = JobActivities(providers, ssh, DirectoryLogStore(config.log_store), settings, mine)
    worker = Worker(
        client,
        task_queue=config.task_queue,
        workflows=[ManagedJob],
        activities=job_activities.all,
        max_concurrent_activities=config.max_activities,
        max_cached_workflows=config.max_activities,
        max_heartbeat_throttle_interval=timedelta(seconds=config.heartbeat_interval_s),
        graceful_shutdown_timeout=timedelta(seconds=config.graceful_shutdown_s),
        sticky_queue_schedule_to_start_timeout=_STICKY_LIMIT,
    )
    async with worker:
        beside = [
            asyncio.create_task(sweep_for_ever(client, providers, mine)),
            asyncio.create_task(_watch_loop_lag()),
        ]
        try:
            yield worker
        finally:
            for task in beside:
                task.cancel()


async def _connect(stop: asyncio.Event) -> Client | None:
    """A worker outlives its server's restart, so it may also start before it; None when asked to stop meanwhile."""
    while not stop.is_set():
        try:
            return await connect()
        except ServerUnreachable as error:
            _log.warning("%s; trying again", error)
        try:
            await asyncio.wait_for(stop.wait(), _RECONNECT_PAUSE_S)
        except TimeoutError:
            continue
    return None


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()

    def asked(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)
    return stop


async def _watch_loop_lag() -> None:
    """A call that blocks the event loop holds up the heartbeats of every task: say so when it happens."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(_LAG_LOOK_S)
        lag = time.monotonic() - before - _LAG_LOOK_S
        if lag > _LAG_LIMIT_S:
            _log.warning("the event loop was blocked for %.1f s", lag)


if __name__ == "__main__":
    sys.exit(main())
