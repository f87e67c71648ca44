"""The SSH server of a local node, and the making of keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from towline.ssh import asyncssh

_BLOCK = 256 * 1024
_SIGNALS_BY_NUMBER = {each.value: each.name.removeprefix("SIG") for each in signal.Signals}


def make_key(path: Path) -> str:
    """The public key, in OpenSSH's format without comment, of the private key at `path`, made if there is none."""
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519")
        # A file of its own for each that tries: threads of one process may, too. The first link is the key, for ever.
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.export_private_key("openssh"))
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
        os.unlink(part)
    public = asyncssh.read_private_key(path).export_public_key("openssh").decode()
    return " ".join(public.split()[:2])


class NodeServer:
    """Runs commands for whoever holds the client key. `last_contact` is when a connection was last open."""

    def __init__(self, host_key: Path, authorized_key: str, home: Path, environment: Mapping[str, str]) -> None:
        self._host_key = host_key
        self._authorized_key = authorized_key
        self._home = home
        self._environment = dict(environment)
        self._open = 0
        self._last_contact = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds without any connection."""
        return 0.0 if self._open else time.monotonic() - self._last_contact

    async def listen(self) -> int:
        """Serve on loopback, for as long as the process lives; returns the port."""
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Contact(self),
            server_host_keys=[str(self._host_key)],
            authorized_client_keys=asyncssh.import_authorized_keys(self._authorized_key),
            process_factory=self._run,
            encoding=None,
            password_auth=False,
            kbdint_auth=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            keepalive_interval=30,
            keepalive_count_max=10,
            login_timeout=30,
        )
        return int(acceptor.get_port())

    def opened(self) -> None:
        """A client has logged in."""
        self._open += 1

    def closed(self) -> None:
        """A client that had logged in is gone."""
        self._open -= 1
        self._last_contact = time.monotonic()

    async def _run(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        """One command, as OpenSSH would: a shell runs it, and it is hung up when its client goes away."""
        if session.command is None:
            session.stderr.write(b"this node runs commands; it has no interactive shell\n")
            session.exit(1)
            return
        child = await asyncio.create_subprocess_exec(
            "/bin/bash",
            "-c",
            session.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._home,
            env=self._environment,
            start_new_session=True,
        )
        ended = asyncio.create_task(self._relay(session, child))
        left = asyncio.create_task(session.channel.wait_closed())
        await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
        if child.returncode is None and left.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGHUP)
        left.cancel()
        await asyncio.wait({ended})

    async def _relay(self, session: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
        """Bytes both ways, no faster than either side takes them, then how the command ended."""
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        feeding = asyncio.create_task(_feed(session.stdin, child.stdin))
        await asyncio.gather(_drain(child.stdout, session.stdout), _drain(child.stderr, session.stderr))
        code = await child.wait()
        feeding.cancel()
        with contextlib.suppress(OSError, asyncssh.Error):  # the client has gone: nobody asks how it ended
            if code < 0:
                session.exit_with_signal(_SIGNALS_BY_NUMBER.get(-code, "KILL"))
            else:
                session.exit(code)


async def _feed(source: asyncssh.SSHReader[bytes], sink: asyncio.StreamWriter) -> None:
    """What the client writes, to the command; its end is the command's end of file."""
    with contextlib.suppress(OSError, asyncssh.Error):  # either has gone, and that is told elsewhere
        while data := await source.read(_BLOCK):
            sink.write(data)
            await sink.drain()
    sink.close()


async def _drain(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    """What the command prints, to the client; read to its end also when the client has gone."""
    while data := await source.read(_BLOCK):
        with contextlib.suppress(OSError, asyncssh.Error):
            sink.write(data)
            await sink.drain()


class _Contact(asyncssh.SSHServer):
    """Tells the node of the clients that have logged in, for its lease."""

    def __init__(self, node: NodeServer) -> None:
        self._node = node
        self._logged_in = False

    def auth_completed(self) -> None:
        self._logged_in = True
        self._node.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._logged_in:
            self._node.closed()
