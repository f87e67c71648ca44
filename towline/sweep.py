"""The sweep: ends the nodes of jobs that no longer run. It is what a *terminated* workflow leaves to others."""

from __future__ import annotations

import asyncio
import logging
import random

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from towline.errors import TowlineError
from towline.naming import job_key
from towline.providers.protocol import Provider, TaggedNode
from towline.providers.registry import Providers
from towline.server import namespace_missing

_log = logging.getLogger("towline.sweep")


async def sweep_for_ever(client: Client, providers: Providers, owner: str, interval_s: float) -> None:
    """Look every `interval_s`, with jitter, until cancelled."""
    suspects: set[str] = set()
    while True:
        await asyncio.sleep(interval_s * random.uniform(0.8, 1.2))
        suspects = await sweep(client, providers, owner, suspects)


async def sweep(client: Client, providers: Providers, owner: str, suspects: set[str]) -> set[str]:
    """One look. A node whose job does not run is suspect, and ended when it was suspect at the look before too, so that
    a job which begins or ends just now is left alone. Returns the suspects. Where nothing is known, nothing is done."""
    found: set[str] = set()
    for provider in providers.all():
        try:
            found |= await _sweep_provider(client, provider, owner, suspects)
        except TowlineError as error:
            _log.warning("provider %s cannot list its nodes: %s", provider.name, error)
        except Exception:  # noqa: BLE001 - the border of a loop that must outlive every fault of one provider
            _log.exception("a fault of Towline's own in the sweep of provider %s", provider.name)
    return found


async def _sweep_provider(client: Client, provider: Provider, owner: str, suspects: set[str]) -> set[str]:
    nodes = await provider.list(owner)
    running = await _running(client, {tagged.tag.job_id for tagged in nodes})
    found: set[str] = set()
    for tagged in nodes:
        if tagged.tag.job_id not in running or running[tagged.tag.job_id] == tagged.tag.job_key:
            continue
        found.add(tagged.node.node_id)
        if tagged.node.node_id in suspects:
            await _end(provider, tagged)
    return found


async def _running(client: Client, job_ids: set[str]) -> dict[str, str | None]:
    """The key of the job of each id that runs, None where none does; an earlier job of the same id has another key.
    An id is absent where the server does not say."""
    found: dict[str, str | None] = {}
    for job_id in sorted(job_ids):
        try:
            description = await client.get_workflow_handle(job_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or namespace_missing(error):
                return found  # it would say no more of the others, only later
            found[job_id] = None
            continue
        runs = description.status is WorkflowExecutionStatus.RUNNING
        first_run_id = description.raw_description.workflow_execution_info.first_run_id or description.run_id
        found[job_id] = job_key(job_id, first_run_id) if runs else None
    return found


async def _end(provider: Provider, tagged: TaggedNode) -> None:
    try:
        await provider.terminate(tagged.node)
    except TowlineError as error:
        _log.warning("node %s of job %s cannot be ended yet: %s", tagged.node.node_id, tagged.tag.job_id, error)
    else:
        _log.info("ended node %s: its job %s does not run", tagged.node.node_id, tagged.tag.job_id)
