"""`provision` and `release`: nodes from a provider, and back to it."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.failures import failure
from activities.heartbeat import beating
from towline.contract import Activity, Node, ProvisionInput, ProvisionResult, ReleaseInput
from towline.errors import NoCapacity, PrecheckFailed, SecretUnreadable
from towline.providers.protocol import NodeTag, Offer, Provider, Request
from towline.providers.registry import Providers
from towline.providers.requests import requests
from towline.resources import Resources
from towline.sealing import Opener


class NodeActivities:
    """`provision` and `release`, bound to a worker's providers. `owner` goes into every node's tag."""

    def __init__(self, providers: Providers, owner: str, opener: Opener) -> None:
        self._providers = providers
        self._owner = owner
        self._opener = opener

    @activity.defn(name=Activity.PROVISION)
    async def provision(self, request: ProvisionInput) -> ProvisionResult:
        """All nodes of the task; the ones already held stay. Retryable while there is no capacity. A cancel goes on
        once what a create in flight has made can be found, so that `release` finds it."""
        shown = {"phase": "provisioning", "generation": request.generation}
        async with beating(lambda: shown):
            try:
                return ProvisionResult(await self._provision(request))
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                # What was there once may be there again: only a first provision can be refused for good.
                raise failure(error, retry_bugs=request.generation > 1) from error

    @activity.defn(name=Activity.RELEASE)
    async def release(self, request: ReleaseInput) -> None:
        """Returns when the provider confirms that every node of the task but `keep` is gone; retried until then."""
        async with beating(lambda: {"phase": "releasing", "nodes": [node.node_id for node in request.nodes]}):
            try:
                await self._release(request)
            except Exception as error:  # the border to Temporal: everything becomes a typed failure
                raise failure(error, retry_bugs=True) from error

    async def _provision(self, request: ProvisionInput) -> list[Node]:
        self._check_secrets(request)
        kept = {node.rank: node for node in request.keep}
        choices = await self._providers.choose(requests(Resources.model_validate(request.resources)))
        ranks = [rank for rank in range(request.num_nodes) if rank not in kept]
        nodes = [await self._create(self._tag(request, rank), choices) for rank in ranks]
        return sorted([*kept.values(), *nodes], key=lambda node: node.rank)

    def _check_secrets(self, request: ProvisionInput) -> None:
        """Before anything is created: a job that was sealed for other workers can never start."""
        try:
            for secrets in request.secrets:
                self._opener.open(secrets)
        except SecretUnreadable as error:
            raise PrecheckFailed(str(error)) from None

    async def _create(self, tag: NodeTag, choices: list[tuple[Request, Offer]]) -> Node:
        """The node of this tag: the one that an earlier activity attempt made, or one from the first offer that has
        capacity."""
        for provider in self._providers_of(choices):
            for found in await provider.list(tag.owner, tag.job_key):
                if found.tag == tag and found.node.host_key:
                    return found.node
        full: list[str] = []
        for request, offer in choices:
            try:
                return await self._providers.get(offer.provider).create(tag, request, offer)
            except NoCapacity as error:
                full.append(str(error))
        raise NoCapacity("; ".join(dict.fromkeys(full)))

    async def _release(self, request: ReleaseInput) -> None:
        await asyncio.gather(*(self._providers.get(node.provider).terminate(node) for node in request.nodes))
        names = {each.infra.split("/")[0] if each.infra else "local" for each in self._requests(request)}
        for name in sorted(names):
            provider = self._providers.get(name)
            for found in await provider.list(self._owner, request.job.key):
                if found.tag.task_index == request.task_index and found.node.node_id not in request.keep:
                    await provider.terminate(found.node)

    def _requests(self, request: ReleaseInput) -> list[Request]:
        return requests(Resources.model_validate(request.resources))

    def _providers_of(self, choices: list[tuple[Request, Offer]]) -> list[Provider]:
        return [self._providers.get(name) for name in dict.fromkeys(offer.provider for _, offer in choices)]

    def _tag(self, request: ProvisionInput, rank: int) -> NodeTag:
        return NodeTag(
            owner=self._owner,
            job_key=request.job.key,
            job_id=request.job.job_id,
            task_index=request.task_index,
            rank=rank,
            generation=request.generation,
        )
