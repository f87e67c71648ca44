"""The border between the commands and the shell: errors become lines for a person, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from towline.cli.session import say
from towline.errors import JobNotFound, ServerUnreachable, TowlineError
from towline.status import ExitCode

FAULT = 70  # sysexits' EX_SOFTWARE
_INTERRUPTED = 130  # what shells say of SIGINT
_PIPE_CLOSED = 141  # and of SIGPIPE
_USERS_OWN = frozenset(
    {
        errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
        errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip
"""What a file system may say because of how it is used: no fault of ours."""


class Commands(click.Group):
    """The commands. That whoever read our output has left is no news, and said to the shell as it says it itself."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(_PIPE_CLOSED) from None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments, which may be a call for help."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            raise click.exceptions.Exit(_PIPE_CLOSED) from None


def prepare_streams() -> None:
    """Streams that the caller closed lead nowhere, and a character that the terminal's encoding lacks is shown by its
    number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
        elif number > 0 and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def guarded(command: Callable[[], Any]) -> int:
    """The exit code of `command`, after a line or more on standard error where it failed."""
    try:
        code = command()
    except click.ClickException as error:
        return _usage(error)
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except SystemExit as error:  # argparse's for wrong usage, and click's own when a pipe is closed
        return error.code if isinstance(error.code, int) else ExitCode.USAGE
    except TowlineError as error:
        return _say(error)
    except OSError as error:
        if error.errno not in _USERS_OWN:
            return _report(error)
        say(f"error: {error.filename or 'output'}: {error.strerror}")
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 - the outermost border: a person gets a line and a file, no traceback
        return _report(error)
    return code if isinstance(code, int) else ExitCode.SUCCEEDED


def leave(code: int) -> NoReturn:
    """Exit at once. The interpreter's own way out would tear down Temporal's threads while they run, which ends some
    processes with a crash; and whoever read our output may have gone, which is no news."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return ExitCode.USAGE
    if isinstance(error, click.UsageError) and error.ctx is not None:
        say(error.ctx.get_usage())
    for line in error.format_message().splitlines():
        say(f"error: {line}")
    return ExitCode.USAGE


def _say(error: TowlineError) -> int:
    for line in str(error).splitlines() or [type(error).__name__]:
        say(f"error: {line}")
    if isinstance(error, JobNotFound):
        return ExitCode.NOT_FOUND
    return ExitCode.SERVER_UNREACHABLE if isinstance(error, ServerUnreachable) else ExitCode.USAGE


def _report(error: Exception) -> int:
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        where = f"please report it with {_write_crash(error)}"
    except OSError as problem:
        where = f"its traceback could not be written ({problem.strerror})"
    with contextlib.suppress(OSError):
        say(f"error: a fault of Towline's own, {where}: {what}")
    return FAULT


def _write_crash(error: Exception) -> Path:
    import traceback
    from datetime import datetime

    home = Path(os.environ.get("TOWLINE_HOME") or "~/.towline").expanduser()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "log").mkdir(mode=0o700, exist_ok=True)
    path = home / "log" / f"crash-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", errors="backslashreplace") as file:
        file.write("".join(traceback.format_exception(error)))
    return path
