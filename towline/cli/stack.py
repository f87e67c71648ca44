"""`up`, `down` and `worker`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from towline.cli.session import configuration, print_json, say, start_stack, waiting
from towline.errors import UsageError

if TYPE_CHECKING:
    from towline.config import Config


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def up(as_json: bool) -> int:
    """Start the embedded stack in the background: a Temporal server with its Web UI, and a worker."""
    info = start_stack(_embedded_config())
    if as_json:
        print_json({"address": info.address, "web_ui_url": info.web_ui_url})
    else:
        say(f"Temporal server: {info.address}")
        say(f"Web UI: {info.web_ui_url}")
    return 0


@click.command()
def down() -> int:
    """Stop the embedded stack. Tasks on their nodes run on; `up` goes on with them."""
    from towline.embedded import EmbeddedStack

    config = _embedded_config()
    stack = EmbeddedStack(config)
    with waiting("stopping the worker and the Temporal server") if _anything_runs(config) else nullcontext():
        stopped = stack.down()
    say(
        "the embedded stack is stopped; jobs that run go on at the next `towline up`"
        if stopped
        else "nothing was running"
    )
    return 0


@click.command()
@click.option("--ready-file", type=click.Path(), help="Touched once the worker polls.")
def worker(ready_file: str | None) -> int:
    """Run a worker in the foreground (the same as `python worker.py`)."""
    from towline.worker import main

    return main(["--ready-file", ready_file] if ready_file else [])


def _anything_runs(config: Config) -> bool:
    from towline import processes
    from towline.embedded import StackFiles

    info = StackFiles(config.home).read()
    return info is not None and any(processes.find(each) for each in (info.keeper, info.worker, info.server))


def _embedded_config() -> Config:
    config = configuration()
    if config.temporal_configured:
        raise UsageError("TEMPORAL_ADDRESS is set, so there is no embedded stack; unset it, or run `towline worker`")
    return config
