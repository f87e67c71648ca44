"""A node in this process: an SSH server of asyncssh that runs commands for real."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.shells import end_all, search_path
from towline.providers.protocol import SshAccess
from towline.ssh import asyncssh


class InProcessServer:
    """The same means as `OpenSsh` has, as far as the contract of the client needs them."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.home.mkdir(parents=True)
        self._identity = directory / "identity"
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._key.write_private_key(self._identity)
        self._environment = {"HOME": str(self.home), "PATH": search_path("dash", directory / "bin")}
        self._running: set[asyncio.subprocess.Process] = set()
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self.port = 0

    async def start(self) -> None:
        """Start serving."""
        outer = self

        class Server(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                outer._connections.add(conn)

        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=Server,
            server_host_keys=[self._host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(self._key.export_public_key().decode("ascii")),
            process_factory=self._run,
            encoding=None,
        )
        self.port = self._acceptor.get_port()

    @property
    def access(self) -> SshAccess:
        """How to reach it."""
        key = " ".join(self._host_key.export_public_key().decode("ascii").split()[:2])
        return SshAccess("127.0.0.1", self.port, "anybody", str(self._identity), key)

    def new_host_keys(self, *_types: str) -> None:
        """Another host key from the next start on."""
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")

    def cut(self) -> None:
        """Break every connection."""
        for connection in self._connections:
            connection.abort()

    async def stop(self) -> None:
        """No longer serve, and break every connection."""
        self.cut()
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for running in self._running:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            await running.wait()

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        running = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            process.command or "",
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._running.add(running)
        assert running.stdout
        assert running.stderr
        feeding = asyncio.create_task(_feed(process, running))
        with suppress(OSError, asyncssh.Error):
            await asyncio.gather(_pump(running.stdout, process.stdout), _pump(running.stderr, process.stderr))
            status = await running.wait()
            if status < 0:
                process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                process.exit(status)
        await feeding


async def _feed(process: asyncssh.SSHServerProcess[bytes], running: asyncio.subprocess.Process) -> None:
    """Ends with the client, and then the command's stdin ends as well."""
    assert running.stdin
    with suppress(OSError, asyncssh.Error):
        while data := await process.stdin.read(65536):
            running.stdin.write(data)
            await running.stdin.drain()
    running.stdin.close()


async def _pump(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    """To its end, also when nobody listens any more."""
    while data := await source.read(65536):
        with suppress(OSError, asyncssh.Error):
            target.write(data)
            await target.drain()


@asynccontextmanager
async def in_process_server(directory: Path) -> AsyncIterator[InProcessServer]:
    """A server that runs."""
    server = InProcessServer(directory)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        end_all(server.home)
