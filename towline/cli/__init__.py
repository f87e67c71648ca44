"""The command line `towline`. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import datetime
from pathlib import Path

import click

from towline import __version__
from towline.cli.jobs import cancel, queue, status
from towline.cli.launching import launch, schema, validate
from towline.cli.logs import logs
from towline.cli.nodes import check, nodes
from towline.cli.stack import down, up, worker
from towline.errors import JobNotFound, ServerUnreachable, TowlineError, UsageError
from towline.status import ExitCode

_FAULT = 70  # sysexits' EX_SOFTWARE: a fault of ours


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="towline")
def towline() -> None:
    """Run lists of tasks on cloud VMs and see each one to its end.

    Exit codes: 0 succeeded, 100 failed, 101 not finished, 102 not found, 103 cancelled, 2 wrong input or usage,
    3 Temporal server unreachable.
    """


for _command in (launch, validate, queue, status, logs, cancel, nodes, up, down, worker, check, schema):
    towline.add_command(_command)


def main() -> None:
    """Run the command line and exit with its code; the border where errors become lines for a person."""
    try:
        code = towline.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except JobNotFound as error:
        code = _say(error, ExitCode.NOT_FOUND)
    except ServerUnreachable as error:
        code = _say(error, ExitCode.SERVER_UNREACHABLE)
    except UsageError as error:
        code = _say(error, ExitCode.USAGE)
    except BrokenPipeError:
        code = _leave_pipe()
    except TowlineError as error:
        code = _say(error, ExitCode.USAGE)
    except Exception as error:  # noqa: BLE001 - the outermost border: a person gets a line and a file, no traceback
        code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _say(error: Exception, code: int) -> int:
    for line in str(error).splitlines() or [type(error).__name__]:
        click.echo(f"error: {line}", err=True)
    return code


def _leave_pipe() -> int:
    """Whoever read our output has left: say nothing more, also not at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _report(error: Exception) -> int:
    home = Path(os.environ.get("TOWLINE_HOME") or "~/.towline").expanduser()
    path = home / "log" / f"crash-{datetime.now():%Y%m%d-%H%M%S}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        path = Path(os.devnull)
    click.echo(
        f"error: a fault of Towline's own, please report it with {path}: {type(error).__name__}: {error}",
        err=True,
    )
    return _FAULT
