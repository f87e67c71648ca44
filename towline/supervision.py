"""Attempts of a task on one node: start or re-attach, watch, follow, close, stop.

The node decides everything that must not go wrong (`towline/node/`): one attempt at a time, none once the
task is closed, the exit code. What is here only asks, and knows that an answer that did not come says
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from towline.errors import AttemptSuperseded, ConnectionLost, NodeCommandFailed, TaskClosed
from towline.node import script
from towline.node.script import Commands, NodeAttempt
from towline.ssh.client import Completed, Connection, Stream

__all__ = ["Commands", "NodeAttempt", "NodeTask"]

_FIRST_SIGNAL_STATUS = 128
_STDERR_SHOWN = 2000
_PAUSE_BETWEEN_FOLLOWS_S = 0.2


class NodeTask:
    """A task on one node, over one connection. Every method raises ConnectionLost when the outcome is
    unknown, and all of them may be called again then."""

    def __init__(self, connection: Connection, job_key: str, task_index: int) -> None:
        self._connection = connection
        self._job_key = job_key
        self._task_index = task_index

    async def attempts(self) -> list[NodeAttempt]:
        """The node's own account of the attempts, oldest first."""
        return [_attempt(line) for line in await self._ask("ledger")]

    async def ensure(self, attempt: int, commands: Commands) -> NodeAttempt:
        """Start the attempt, unless it exists: then this is a re-attachment and `commands` are not looked
        at. Whatever is left of earlier attempts is ended first. Raises AttemptSuperseded and TaskClosed."""
        lines = await self._ask("ensure", attempt, stdin=script.payload(commands))
        match lines:
            case ["closed"]:
                raise TaskClosed(f"task {self._name} is closed on its node; attempt {attempt} does not start")
            case ["superseded"]:
                raise AttemptSuperseded(f"task {self._name} has a newer attempt than {attempt} on its node")
        return _attempt(_only(lines))

    async def watch(self, attempt: int, on_phase: Callable[[str], None]) -> NodeAttempt:
        """How the attempt ended, as soon as it has. `on_phase` is told the phase it is in and each that
        begins."""
        async with self._call("watch", attempt) as call:
            async for line in call.lines():
                name, _, value = line.partition(" ")
                if name != "phase":
                    return _attempt(line)
                on_phase(value)
            raise await call.fault()

    async def close(self) -> None:
        """Let no further attempt start. What runs is left alone."""
        await self._ask("close")

    async def is_closed(self) -> bool:
        """Whether no further attempt may start."""
        return _only(await self._ask("closed")) == "yes"

    async def stop(self, grace_s: float) -> None:
        """Close the task and end its processes: SIGTERM, at most `grace_s`, SIGKILL. Returns when none is
        left."""
        await self._ask("stop", script.hundredths(grace_s))

    async def next_attempt(self, after: int) -> int | None:
        """Waits until there is an attempt after `after` and returns its number; None once the task is
        closed and there is none."""
        async with self._call("next", after) as call:
            async for line in call.lines():
                return None if line == "none" else int(line)
            raise await call.fault()

    async def follow(self, attempt: int, offset: int) -> AsyncIterator[bytes]:
        """The log's bytes from `offset` on as they are printed, until the attempt has ended and all are
        read."""
        while True:
            before = offset
            async with self._call("follow", attempt, offset) as call:
                async for data in call.chunks():
                    offset += len(data)
                    yield data
                status = await call.exit_status()
                if status == 0:
                    return
                if status != script.AGAIN:
                    raise await call.fault()
            if offset == before:
                await asyncio.sleep(_PAUSE_BETWEEN_FOLLOWS_S)

    async def log_size(self, attempt: int) -> int:
        """How many bytes the attempt has printed so far."""
        return int(_only(await self._ask("size", attempt)))

    async def output(self, attempt: int, most: int) -> bytes:
        """The first `most` bytes of the file in which the attempt hands on values."""
        return await self._ask_bytes("output", attempt, most)

    async def remove(self) -> None:
        """Close the task and delete what its attempts left, on a node that lives on. The mark that it is
        closed stays, so that nothing can start the task again."""
        await self._ask("remove")

    @property
    def _name(self) -> str:
        return f"{self._job_key}/{self._task_index}"

    async def _ask(self, name: str, *arguments: int, stdin: bytes = b"") -> list[str]:
        """The lines of the answer of a command that is expected to end by itself."""
        return (await self._ask_bytes(name, *arguments, stdin=stdin)).decode("utf-8", "replace").splitlines()

    async def _ask_bytes(self, name: str, *arguments: int, stdin: bytes = b"") -> bytes:
        """Its answer as it is."""
        nonce = script.new_nonce()
        line = script.command(nonce, name, self._job_key, self._task_index, *arguments)
        done = await self._connection.run(line, stdin)
        if done.exit_status == script.NOT_INSTALLED:
            await self._install()
            done = await self._connection.run(line, stdin)
        answer = script.Answer(nonce)
        found = answer.feed(done.stdout)
        if done.exit_status != 0 or not answer.begun:
            raise _fault(name, done.exit_status, done.stderr)
        return found

    @asynccontextmanager
    async def _call(self, name: str, *arguments: int) -> AsyncIterator[_Call]:
        """A command that answers bit by bit. It ends on the node when this context does."""
        nonce = script.new_nonce()
        line = script.command(nonce, name, self._job_key, self._task_index, *arguments)
        async with self._connection.open(line) as stream:
            call = _Call(name, nonce, stream)
            if await call.begin():
                yield call
                return
        await self._install()
        async with self._connection.open(line) as stream:
            call = _Call(name, nonce, stream)
            if not await call.begin():
                raise NodeCommandFailed("the node script was installed on the node and is not there")
            yield call

    async def _install(self) -> None:
        done: Completed = await self._connection.run(script.install_command(), script.source())
        if done.exit_status != 0:
            raise _fault("install", done.exit_status, done.stderr)


class _Call:
    """A command of the node script that answers bit by bit."""

    def __init__(self, name: str, nonce: str, stream: Stream) -> None:
        self._name = name
        self._answer = script.Answer(nonce)
        self._stream = stream
        self._first = b""

    async def begin(self) -> bool:
        """Waits for the answer to begin; False where the node does not have the script."""
        while not self._answer.begun:
            data = await self._stream.read()
            if not data:
                if await self._stream.exit_status() == script.NOT_INSTALLED:
                    return False
                raise await self.fault()
            self._first = self._answer.feed(data)
        return True

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answer's bytes."""
        if self._first:
            yield self._first
        while data := await self._stream.read():
            yield data

    async def lines(self) -> AsyncIterator[str]:
        """The answer's lines."""
        rest = b""
        async for data in self.chunks():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")

    async def exit_status(self) -> int:
        """How the command ended."""
        return await self._stream.exit_status()

    async def fault(self) -> Exception:
        """What it means that the command ended without the answer."""
        status = await self._stream.exit_status()
        return _fault(self._name, status, await self._stream.read_all_stderr())


def _fault(name: str, status: int, stderr: bytes) -> Exception:
    said = stderr.decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
    if status > _FIRST_SIGNAL_STATUS:
        # Somebody on the node ended our command, the user's own `killall` perhaps: look again.
        return ConnectionLost(f"`{name}` was killed on the node (exit status {status})")
    return NodeCommandFailed(f"`{name}` ended on the node with exit status {status}: {said or 'no message'}")


def _attempt(line: str) -> NodeAttempt:
    try:
        return script.parse_attempt(line)
    except ValueError as error:
        raise NodeCommandFailed(f"the node answered what it never should: {error}") from error


def _only(lines: list[str]) -> str:
    if len(lines) != 1:
        raise NodeCommandFailed(f"the node answered what it never should: {lines[:3]!r}")
    return lines[0]
