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

INTERVAL_S = 30.0
_log = logging.getLogger("towline.sweep")


async def sweep_for_ever(client: Client, providers: Providers, owner: str) -> None:
    """Look every half a minute, with jitter, until cancelled."""
    suspects: set[str] = set()
    while True:
        await asyncio.sleep(INTERVAL_S * random.uniform(0.8, 1.2))
        suspects = await sweep(client, providers, owner, suspects)


async def sweep(client: Client, providers: Providers, owner: str, suspects: set[str]) -> set[str]:
    """One look. A node whose job does not run is suspect, and ended when it was suspect at the look before
    too, so that a
    job which begins or ends just now is left alone. Returns the suspects. Where nothing is known, nothing is done."""
    found: set[str] = set()
    for provider in providers.all():
        try:
            nodes = await provider.list(owner)
        except TowlineError as error:
            _log.warning("provider %s cannot list its nodes: %s", provider.name, error)
            continue
        for tagged in nodes:
            if await _orphaned(client, tagged):
                found.add(tagged.node.node_id)
                if tagged.node.node_id in suspects:
                    await _end(provider, tagged)
    return found


async def _orphaned(client: Client, tagged: TaggedNode) -> bool:
    """Whether the very job that made the node has ended, or was never heard of."""
    try:
        description = await client.get_workflow_handle(tagged.tag.job_id).describe()
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    first_run_id = description.raw_description.workflow_execution_info.first_run_id or description.run_id
    if job_key(tagged.tag.job_id, first_run_id) != tagged.tag.job_key:
        return True  # a later job of the same id: the node's own job has ended
    return description.status is not WorkflowExecutionStatus.RUNNING


async def _end(provider: Provider, tagged: TaggedNode) -> None:
    try:
        await provider.terminate(tagged.node)
    except TowlineError as error:
        _log.warning("node %s of job %s cannot be ended yet: %s", tagged.node.node_id, tagged.tag.job_id, error)
    else:
        _log.info("ended node %s: its job %s does not run", tagged.node.node_id, tagged.tag.job_id)
