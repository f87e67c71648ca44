"""The command line `towline`. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import click

from towline import __version__
from towline.cli.border import Commands, guarded, leave, prepare_streams
from towline.cli.jobs import cancel, queue, status
from towline.cli.keys import codec_server, keygen
from towline.cli.launching import launch, schema, validate
from towline.cli.logs import logs
from towline.cli.nodes import check, nodes
from towline.cli.stack import down, up, worker


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="towline")
def towline() -> None:
    """Run lists of tasks on cloud VMs and see each one to its end.

    Exit codes: 0 succeeded, 100 failed, 101 not finished, 102 not found, 103 cancelled, 2 wrong input or usage,
    3 Temporal server unreachable, 70 a fault of Towline's own, 130 interrupted before anything was
    submitted, 141 whoever read the output has left, as in `towline logs JOB | head`.
    """


for _command in (
    launch,
    validate,
    queue,
    status,
    logs,
    cancel,
    nodes,
    up,
    down,
    worker,
    check,
    schema,
    keygen,
    codec_server,
):
    towline.add_command(_command)


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    leave(guarded(lambda: towline.main(prog_name="towline", standalone_mode=False)))
