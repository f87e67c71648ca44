"""A Temporal server as Towline needs it: connecting, search attributes, retention, and whose nodes are whose."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetClusterInfoRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from towline.contract import SEARCH_ATTRIBUTE_TYPES
from towline.errors import ServerUnreachable, UsageError

CONNECT_LIMIT_S = 10.0
_USABLE_LIMIT_S = 10.0
_VALUE_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


async def connect(address: str | None = None) -> Client:
    """A client for the server at `address`, or the one that Temporal's environment configuration names.

    Raises ServerUnreachable when none answers, UsageError when the configuration itself is wrong.
    """
    options: dict[str, Any] = {"target_host": address, "namespace": "default"} if address else _configured()
    where = options.get("target_host") or "localhost:7233"
    try:
        return await asyncio.wait_for(Client.connect(**{"target_host": where, **options}), CONNECT_LIMIT_S)
    except (RuntimeError, RPCError, TimeoutError, OSError) as error:
        detail = " ".join(str(error).split())[:300] or "no answer"
        remedy = "check TEMPORAL_ADDRESS, or unset it and run `towline up`"
        raise ServerUnreachable(f"no Temporal server answers at {where} ({detail}); {remedy}") from None


def _configured() -> dict[str, Any]:
    try:
        return dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"Temporal's environment configuration cannot be used: {error}") from None


def silence_core() -> None:
    """Keep Temporal's core from writing its warnings to standard output, which in the command line is the job's."""
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)), error_if_already_set=False)


async def prepare(client: Client) -> list[str]:
    """Register the search attributes that are missing. Returns what could not be done, a line each, with the remedy."""
    try:
        existing = await _search_attributes(client)
    except RPCError as error:
        return [_cannot(client, sorted(SEARCH_ATTRIBUTE_TYPES), error.message)]
    wrong = [
        f"search attribute {name} has another type than {kind}; rename it in Temporal, or use another namespace"
        for name, kind in SEARCH_ATTRIBUTE_TYPES.items()
        if name in existing and existing[name] != _VALUE_TYPES[kind]
    ]
    missing = [name for name in SEARCH_ATTRIBUTE_TYPES if name not in existing]
    if not missing:
        return wrong
    try:
        await _register(client, missing)
    except (RPCError, TimeoutError) as error:
        return [*wrong, _cannot(client, missing, getattr(error, "message", str(error)))]
    return wrong


async def _search_attributes(client: Client) -> dict[str, int]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=timedelta(seconds=10)
    )
    return dict(answer.custom_attributes)


async def _register(client: Client, names: list[str]) -> None:
    """Add them, and return only when the server lists them: an upsert before that would block its job."""
    wanted = {name: _VALUE_TYPES[SEARCH_ATTRIBUTE_TYPES[name]] for name in names}
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted),
            timeout=timedelta(seconds=10),
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
    async with asyncio.timeout(_USABLE_LIMIT_S):
        while not set(names) <= set(await _search_attributes(client)):
            await asyncio.sleep(0.2)


def _cannot(client: Client, names: list[str], why: str) -> str:
    flags = " ".join(f"--name {name} --type {SEARCH_ATTRIBUTE_TYPES[name]}" for name in names)
    command = f"temporal operator search-attribute create --namespace {client.namespace} {flags}"
    return f"search attributes could not be registered ({why}); jobs run without them until someone runs: {command}"


async def set_retention(client: Client, days: int) -> None:
    """How long ended jobs stay on the server."""
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=days * 86400))
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(namespace=client.namespace, config=config), timeout=timedelta(seconds=10)
    )


async def owner(client: Client) -> str:
    """Whose nodes the workers of this namespace on this server may sweep: `NAMESPACE@CLUSTER`."""
    try:
        info = await client.workflow_service.get_cluster_info(GetClusterInfoRequest(), timeout=timedelta(seconds=10))
        return f"{client.namespace}@{info.cluster_id or client.service_client.config.target_host}"
    except RPCError:
        return f"{client.namespace}@{client.service_client.config.target_host}"
