"""`nodes` and `check`: the nodes held, and the providers that can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from towline.cli.session import configuration, print_json, run, say
from towline.errors import JobNotFound, TowlineError

if TYPE_CHECKING:
    from towline.config import Config
    from towline.providers.protocol import ProviderCheck, TaggedNode

_STATES = {"running": "held"}
"""What `status` calls the states that providers tell; the others it does not know."""


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def nodes(context: click.Context, as_json: bool) -> int:
    """List the nodes that jobs hold."""
    if context.invoked_subcommand is not None:
        return 0
    rows = [_row(each) for each in run(_nodes(configuration()))]
    if as_json:
        print_json(rows)
    else:
        from towline.cli.render import node_table

        node_table(rows)
    return 0


@nodes.command()
@click.argument("node_id", metavar="ID")
def preempt(node_id: str) -> int:
    """Take a `local` node away without warning, to see a recovery."""
    from towline.providers.local import LocalProvider

    if not LocalProvider(configuration().home).preempt(node_id):
        raise JobNotFound(f"no local node {node_id} is held; see `towline nodes`")
    say(f"{node_id} is gone")
    return 0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def check(as_json: bool) -> int:
    """Say which providers can be used, and what is missing."""
    rows = run(_check(configuration()))
    if as_json:
        print_json([vars(row) for row in rows])
    else:
        from towline.cli.render import check_table

        check_table(rows)
    return 0


async def _check(config: Config) -> list[ProviderCheck]:
    from towline.ssh.client import SshClient
    from towline.worker import providers_of

    providers = providers_of(config, SshClient()).all()
    return [line for provider in providers for line in await provider.check()]


async def _nodes(config: Config) -> list[TaggedNode]:
    """Of every owner: this shows what there is on this machine and in its pools."""
    from towline.ssh.client import SshClient
    from towline.worker import providers_of

    found: list[TaggedNode] = []
    for provider in providers_of(config, SshClient()).all():
        try:
            found += await provider.list(None)
        except TowlineError as error:
            say(f"provider {provider.name}: {error}")
    return found


def _row(tagged: TaggedNode) -> dict[str, Any]:
    node = tagged.node
    return {
        "node_id": node.node_id,
        "job_id": tagged.tag.job_id,
        "task_index": tagged.tag.task_index,
        "rank": tagged.tag.rank,
        "provider": node.provider,
        "host": node.host,
        "port": node.port,
        "pid": tagged.pid,
        "state": _STATES.get(tagged.state, tagged.state),
    }
