"""What commands share: the configuration, a connection to the server, and running asynchronous work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from towline.config import Config
from towline.errors import ServerUnreachable

if TYPE_CHECKING:
    from towline.client import JobClient

_Result = TypeVar("_Result")


def say(text: str) -> None:
    """Towline's own words, on standard error."""
    click.echo(text, err=True)


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work` to its end."""
    return asyncio.run(work)


async def connect(config: Config, *, start: bool = False) -> JobClient:
    """A client of the configured server, or of the embedded one, which is started first if `start`."""
    from towline.client import JobClient
    from towline.embedded import EmbeddedStack

    if config.temporal_configured:
        return await JobClient.connect(config)
    stack = EmbeddedStack(config)
    info = await asyncio.to_thread(stack.up, say) if start else stack.running()
    if info is None:
        raise ServerUnreachable("no Temporal server: run `towline up` for the embedded one, or set TEMPORAL_ADDRESS")
    return await JobClient.connect(config, info.address)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    import json

    click.echo(json.dumps(document, indent=2))
