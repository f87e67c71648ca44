"""What commands share: the configuration, a connection to the server, words on standard error, JSON on standard output.

Whatever takes long to import is imported where it is used, so that `towline --help` is quick.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from towline.errors import ServerUnreachable

if TYPE_CHECKING:
    from towline.client import JobClient
    from towline.config import Config
    from towline.embedded import StackInfo

_Result = TypeVar("_Result")


def job_id(value: str) -> str:
    """The type of an argument that is the id of a job: any text that can be sent."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("a job id is UTF-8 text") from None
    if not value.strip():
        raise click.BadParameter("a job id is not empty; see `towline queue`")
    return value


def configuration() -> Config:
    """The configuration of this process."""
    from towline.config import Config

    return Config.from_environment()


def plain(text: object) -> str:
    """Nothing that a terminal would take for a command: control characters are shown, not sent."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text))


def say(text: str) -> None:
    """Towline's own words, on standard error."""
    click.echo("\n".join(plain(line) for line in text.split("\n")), err=True)


def command_line(*words: str) -> str:
    """A command to copy, quoted for a shell."""
    last = words[-1]
    return shlex.join(["towline", *words[:-1], *(["--"] if last.startswith("-") else []), last])


class Waiting:
    """What is waited for, on standard error: a spinner while that is a terminal, nothing more where it is not."""

    def __init__(self) -> None:
        self._status: Any = None
        self._on_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Wait for `text` from now on."""
        if not self._on_terminal:
            return
        from rich.console import Console
        from rich.text import Text

        shown = Text(plain(text), no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = Console(stderr=True).status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def hide(self) -> None:
        """Leave the line as it was."""
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say what is waited for while the block runs: a spinner on a terminal, else a line."""
    spinner = Waiting()
    if not sys.stderr.isatty():
        say(text)
    spinner.show(text)
    try:
        yield
    finally:
        spinner.hide()


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work` to its end."""
    import asyncio

    return asyncio.run(work)


def start_stack(config: Config) -> StackInfo:
    """The embedded stack, started if need be. Not asynchronous, so that Ctrl-C ends the wait at once."""
    from towline.embedded import EmbeddedStack

    spinner = Waiting()

    def progress(text: str) -> None:
        say(text)
        spinner.show(text)

    try:
        return EmbeddedStack(config).up(progress)
    finally:
        spinner.hide()


async def connect(config: Config, address: str | None = None) -> JobClient:
    """A client of the server at `address`, of the configured one, or of the embedded one if it runs."""
    from towline.client import JobClient

    if address is None and not config.temporal_configured:
        from towline.embedded import EmbeddedStack

        info = EmbeddedStack(config).running()
        if info is None:
            remedy = "run `towline up` for the embedded one, or set TEMPORAL_ADDRESS"
            raise ServerUnreachable(f"no Temporal server: {remedy}")
        address = info.address
    return await JobClient.connect(config, address)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    import json

    click.echo(json.dumps(document, indent=2))
