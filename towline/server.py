"""A Temporal server as Towline needs it: connecting, search attributes, retention, and whose nodes are whose."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    GetClusterInfoRequest,
    ListWorkflowExecutionsRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from towline.contract import SEARCH_ATTRIBUTE_TYPES
from towline.errors import ServerUnreachable, UsageError

CONNECT_LIMIT_S = 5.0
UNREACHABLE = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
    }
)
"""What a server says, or the way to it, that may be otherwise a moment later."""

_DEFAULT_ADDRESS = "localhost:7233"
_RPC_LIMIT = timedelta(seconds=10)
_USABLE_LIMIT_S = 10.0
_REFUSALS = ("Unauthenticated", "PermissionDenied")
_HOST_AND_PORT = re.compile(r"(?:[^\s/:@\[\]]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")
_LARGEST_PORT = 65535
_CAUSES = (
    (r"connection ?refused", "connection refused"),
    (r"dns error|lookup address", "its host is unknown"),
    (r"network ?unreachable|host ?unreachable|no route to host", "there is no route to it"),
    (r"timed ?out|timeout|deadline", "no answer"),
    (r"invalid peer certificate: (\w+)", "its certificate is not accepted: {}"),
    (r"InvalidContentType|corrupt message", "it does not speak TLS"),
    (r"connection ?reset|broken ?pipe|channel closed|h2 protocol error|FRAME_SIZE_ERROR|goaway", "connection broken"),
)
"""What a person calls the reasons that Temporal's core shows as it debugs them."""
_VALUE_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}
_PROBES = {"Keyword": '"towline"', "Int": "1"}


async def connect(address: str | None = None, converter: DataConverter | None = None) -> Client:
    """A client for the server at `address`, or the one that Temporal's environment configuration names.

    Raises ServerUnreachable when none answers, UsageError when the configuration itself is wrong or refused.
    """
    options: dict[str, Any] = {"target_host": address, "namespace": "default"} if address else _configured()
    where = options.setdefault("target_host", _DEFAULT_ADDRESS)
    _check_address(where)
    if converter:
        options["data_converter"] = converter
    try:
        return await asyncio.wait_for(Client.connect(**options, runtime=_runtime()), CONNECT_LIMIT_S)
    except (RuntimeError, ValueError, RPCError, TimeoutError, OSError) as error:
        said = str(error) or f"no answer within {CONNECT_LIMIT_S:g} s"
    if any(word in said for word in _REFUSALS):
        text = f"refuses us: check TEMPORAL_API_KEY, TLS settings ({why(said)})"
        raise UsageError(f"the Temporal server at {where} {text}")
    raise ServerUnreachable(
        f"no Temporal server answers at {where} ({why(said)}); check TEMPORAL_ADDRESS and the TLS settings, "
        "or unset them for the embedded server of `towline up`"
    )


def _configured() -> dict[str, Any]:
    try:
        return dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"Temporal's environment configuration cannot be used: {error}") from None


def _check_address(address: str) -> None:
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or not 0 < int(match[1]) <= _LARGEST_PORT:
        source = "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") == address else "Temporal's address"
        raise UsageError(f"{source}={address}: write HOST:PORT")


def why(said: str) -> str:
    """The reason in what Temporal's core says of a failed call, in the words of a person."""
    for pattern, words in _CAUSES:
        match = re.search(pattern, said, re.IGNORECASE)
        if match:
            return words.format(*match.groups())
    quoted = re.findall(r'message: "((?:[^"\\]|\\.)+)"', said) or re.findall(r'"((?:[^"\\]|\\.)+)"', said)
    return " ".join((quoted[-1] if quoted else said).split())[:300]


@functools.cache
def _runtime() -> Runtime:
    """Temporal's core, with its log in ours: its own goes to standard output, which belongs to the user's bytes."""
    logger = logging.getLogger("temporalio.core")
    logger.addHandler(logging.NullHandler())  # a program that sets up no logging, as the command line, shows none of it
    forwarding = LogForwardingConfig(logger=logger, append_target_to_name=False)
    filters = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=filters, forwarding=forwarding)))


def namespace_missing(error: RPCError) -> bool:
    """Whether the server says so of the namespace, rather than of what was asked for in it."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        return False
    details = error.grpc_status.details if error.grpc_status else []
    return any(each.type_url.endswith("NamespaceNotFoundFailure") for each in details)


async def prepare(client: Client) -> list[str]:
    """Register the search attributes that are missing. Returns what could not be done, a line each, with the remedy.

    Raises ServerUnreachable when the server does not answer, UsageError when there is no such namespace.
    """
    try:
        return await _prepare(client)
    except RPCError as error:
        if namespace_missing(error):
            text = f"there is no namespace {client.namespace} on the Temporal server; check TEMPORAL_NAMESPACE"
            raise UsageError(text) from None
        if error.status in UNREACHABLE:
            raise ServerUnreachable(f"the Temporal server does not answer ({why(error.message)})") from None
        usable = await _all_usable(client)  # registered by somebody else, who may do more than we
        return [] if usable else [_cannot(client, sorted(SEARCH_ATTRIBUTE_TYPES), error.message)]


async def _prepare(client: Client) -> list[str]:
    existing = await _search_attributes(client)
    wrong = [
        f"search attribute {name} has another type than {kind}, so jobs run without search attributes; "
        "rename it in Temporal, or use another namespace"
        for name, kind in SEARCH_ATTRIBUTE_TYPES.items()
        if name in existing and existing[name] != _VALUE_TYPES[kind]
    ]
    missing = [name for name in SEARCH_ATTRIBUTE_TYPES if name not in existing]
    if not missing:
        return wrong
    try:
        await _register(client, missing)
    except RPCError as error:
        if error.status in UNREACHABLE:
            raise
        return [*wrong, _cannot(client, missing, error.message)]
    except TimeoutError:
        return [*wrong, _cannot(client, missing, f"they were not usable within {_USABLE_LIMIT_S:g} s")]
    return wrong


async def _search_attributes(client: Client) -> dict[str, int]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=_RPC_LIMIT
    )
    return dict(answer.custom_attributes)


async def _register(client: Client, names: list[str]) -> None:
    """Add them, and return only when the server takes them: an upsert before that would hold up its job."""
    wanted = {name: _VALUE_TYPES[SEARCH_ATTRIBUTE_TYPES[name]] for name in names}
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted), timeout=_RPC_LIMIT
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # another worker was quicker
            raise
    async with asyncio.timeout(_USABLE_LIMIT_S):
        while not set(names) <= set(await _search_attributes(client)):
            await asyncio.sleep(0.2)


async def _all_usable(client: Client) -> bool:
    """Asked as everybody may: a query that names them all is refused when one of them is missing or of another type."""
    query = " AND ".join(f"{name} = {_PROBES[kind]}" for name, kind in SEARCH_ATTRIBUTE_TYPES.items())
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, page_size=1, query=query)
    try:
        await client.workflow_service.list_workflow_executions(request, timeout=_RPC_LIMIT)
    except RPCError:
        return False
    return True


def _cannot(client: Client, names: list[str], why: str) -> str:
    pairs = [(name, SEARCH_ATTRIBUTE_TYPES[name]) for name in names]
    if "tmprl.cloud" in client.service_client.config.target_host:
        flags = " ".join(f'--sa "{name}={kind}"' for name, kind in pairs)
        command = f"tcld namespace search-attributes add --namespace {client.namespace} {flags}"
    else:
        flags = " ".join(f"--name {name} --type {kind}" for name, kind in pairs)
        command = f"temporal operator search-attribute create --namespace {client.namespace} {flags}"
    return f"search attributes could not be registered ({why}); jobs run without them until someone runs: {command}"


async def set_retention(client: Client, days: int) -> None:
    """How long ended jobs stay on the server."""
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=days * 86400))
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(namespace=client.namespace, config=config), timeout=_RPC_LIMIT
    )


async def owner(client: Client) -> str:
    """Whose nodes the workers of this namespace on this server may sweep: `NAMESPACE@CLUSTER`.

    Raises ServerUnreachable rather than guess: another name than the last time would orphan every node.
    """
    try:
        info = await client.workflow_service.get_cluster_info(GetClusterInfoRequest(), timeout=_RPC_LIMIT)
    except RPCError as error:
        if error.status in UNREACHABLE:
            raise ServerUnreachable(f"the Temporal server does not answer ({why(error.message)})") from None
        return f"{client.namespace}@{client.service_client.config.target_host}"  # a hosted server keeps its name
    return f"{client.namespace}@{info.cluster_id or client.service_client.config.target_host}"
