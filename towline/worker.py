"""The worker: the one place where all parts are assembled."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from towline.config import Config
from towline.directory_log_store import DirectoryLogStore
from towline.embedded import EmbeddedStack
from towline.errors import ServerUnreachable, UsageError
from towline.payload_codec import data_converter
from towline.processes import leave
from towline.providers.local import LocalProvider
from towline.providers.registry import Providers
from towline.providers.ssh_pool import SshPoolProvider
from towline.sealing import Opener
from towline.server import connect, owner, prepare, set_retention
from towline.ssh.client import SshClient
from towline.sweep import sweep_for_ever

_RECONNECT_PAUSE_S = 1.0
_RECONNECT_WORD_EVERY_S = 10.0
_LAG_LOOK_S = 1.0
_LAG_LIMIT_S = 1.0
_STICKY_LIMIT = timedelta(seconds=5)
_log = logging.getLogger("towline.worker")
_Result = TypeVar("_Result")


def main(arguments: list[str] | None = None, providers: ProvidersOf | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT; a second one ends it at once. `providers` makes what it gets nodes from, if
    that is not to be `providers_of`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="worker.py", description="A Towline worker, in the foreground.")
    parser.add_argument("--ready-file", type=Path, help="there while the worker polls; default: $TOWLINE_WORKER_READY")
    parser.add_argument("--retention-days", type=int, help="set on the namespace: how long ended jobs are kept")
    options = parser.parse_args(arguments)
    ready_file = options.ready_file or os.environ.get("TOWLINE_WORKER_READY")
    _log_to_stderr()
    try:
        config = Config.from_environment()
        asyncio.run(run(config, Path(ready_file) if ready_file else None, options.retention_days, providers))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    logging.getLogger("temporalio.activity").setLevel(logging.ERROR)  # restarts and recoveries are no news here


def providers_of(config: Config, ssh: SshClient) -> Providers:
    """The providers of this installation, in the order of preference."""
    pools = SshPoolProvider(config.home / "ssh_node_pools.yaml", config.home / "known_hosts", ssh)
    return Providers([LocalProvider(config.home, config.node_lease_s), pools])


ProvidersOf = Callable[[Config, SshClient], Providers]


@dataclass(frozen=True)
class Server:
    """A Temporal server that is ready for jobs. `owner` is whose nodes this worker may sweep; `shortcomings` what the
    server lacks, a line each."""

    client: Client
    owner: str
    shortcomings: list[str]


async def run(
    config: Config,
    ready_file: Path | None = None,
    retention_days: int | None = None,
    providers: ProvidersOf | None = None,
) -> None:
    """Connect, waiting for the server if need be, and work until a signal asks to stop."""
    config.make_home()
    stop = _stop_on_signals()
    server = await _unless(stop, _reach(config, retention_days))
    if server is None:
        return
    async with building(config, server, providers or providers_of):
        _log.info("working on task queue %s of namespace %s", config.task_queue, server.client.namespace)
        if ready_file:
            ready_file.touch()
        await stop.wait()
        if ready_file:
            ready_file.unlink(missing_ok=True)
        _log.info("stopping; tasks run on, the next worker goes on with them")


def _embedded_address(config: Config) -> str | None:
    """The server of the embedded stack, where it runs and the environment names no other."""
    info = None if config.temporal_configured else EmbeddedStack(config).running()
    return info.address if info else None


async def _reach(config: Config, retention_days: int | None) -> Server:
    """The server of the environment, once it answers: a worker may start before its server, and outlives it."""
    silent_until = 0.0
    converter = data_converter(config)
    while True:
        try:
            client = await connect(_embedded_address(config), converter)
            server = Server(client, await owner(client), await prepare(client))
            if retention_days:
                await _keep_for(client, retention_days)
            return server
        except ServerUnreachable as error:
            if time.monotonic() >= silent_until:
                silent_until = time.monotonic() + _RECONNECT_WORD_EVERY_S
                _log.warning("%s; trying again", error)
        await asyncio.sleep(_RECONNECT_PAUSE_S)


async def _keep_for(client: Client, days: int) -> None:
    try:
        await set_retention(client, days)
    except RPCError as error:
        _log.warning("ended jobs cannot be kept for %d days: %s", days, error.message)


@asynccontextmanager
async def building(config: Config, server: Server, make_providers: ProvidersOf = providers_of) -> AsyncIterator[Worker]:
    """A running worker with everything it needs beside it."""
    from activities import JobActivities  # what only a worker needs is only imported in one
    from workflows.managed_job import ManagedJob

    for line in server.shortcomings:
        _log.warning("%s", line)
    settings = replace(config.settings, search_attributes=not server.shortcomings)
    ssh = SshClient()
    providers = make_providers(config, ssh)
    store, opener = DirectoryLogStore(config.log_store), Opener(config)
    job_activities = JobActivities(providers, ssh, store, settings, server.owner, opener)
    worker = Worker(
        server.client,
        task_queue=config.task_queue,
        workflows=[ManagedJob],
        activities=job_activities.all,
        max_concurrent_activities=config.max_activities,
        max_cached_workflows=config.max_activities,
        max_heartbeat_throttle_interval=timedelta(seconds=config.heartbeat_interval_s),
        graceful_shutdown_timeout=timedelta(seconds=config.graceful_shutdown_s),
        sticky_queue_schedule_to_start_timeout=_STICKY_LIMIT,
    )
    _say_keys(opener)
    async with worker:
        beside = [
            asyncio.create_task(sweep_for_ever(server.client, providers, server.owner, config.sweep_interval_s)),
            asyncio.create_task(_watch_loop_lag()),
        ]
        try:
            yield worker
        finally:
            for task in beside:
                task.cancel()


def _say_keys(opener: Opener) -> None:
    try:
        known = opener.key_ids()
    except UsageError as error:
        _log.warning("jobs with secrets are refused: %s", error)
    else:
        _log.info("opens secrets that are sealed for key %s", " or ".join(known) or "none: it has no key")


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """The result of `work`; None, and `work` let go, when asked to stop first."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()


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
    leave(main())
