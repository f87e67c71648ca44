"""SSH to nodes: connections, commands and streams of bytes.

Two things are told apart everywhere: a command that ended, and one whose outcome is unknown. A connection
that breaks says nothing about what ran over it, so it never looks like an exit status: it is
ConnectionLost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from towline.errors import ConnectionLost, HostKeyChanged, NodeCommandFailed, TowlineError
from towline.providers.protocol import SshAccess
from towline.ssh import asyncssh

MOST_HANDSHAKES_PER_HOST = 8
"""Stock sshd drops connections at random beyond ten that are not yet authenticated (MaxStartups)."""
MOST_SESSIONS_PER_CONNECTION = 6
"""Stock sshd refuses the eleventh (MaxSessions); some that are just closing still count."""
MOST_CONNECT_TRIES = 4
MOST_OUTPUT_BYTES = 4 << 20
CLOSE_PATIENCE_S = 2.0
KEEPALIVE_COUNT = 3
_WINDOW_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10

_ISOLATED: dict[str, Any] = {
    # Nothing of the person who happens to run the worker: no configuration, agent, other keys or
    # certificates.
    "config": [],
    "agent_path": None,
    "agent_forwarding": False,
    "x509_trusted_certs": None,
    "x509_trusted_cert_paths": [],
    "gss_kex": False,
    "gss_auth": False,
    "gss_host": None,
    "password_auth": False,
    "kbdint_auth": False,
    "host_based_auth": False,
}

_COMMON_HOST_KEY_TYPES = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]


@dataclass(frozen=True)
class Completed:
    """A command that ended. One that was ended by a signal has the exit status 128 + its number, as in a
    shell."""

    exit_status: int
    stdout: bytes
    stderr: bytes


class SshClient:
    """Makes connections, few enough at a time for each host to accept them. One per process.

    A peer that has been silent for `keepalive_interval_s` * (KEEPALIVE_COUNT + 1) counts as lost.
    """

    def __init__(self, *, keepalive_interval_s: float = 5) -> None:
        self._keepalive_interval_s = keepalive_interval_s
        self._handshakes: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def connect(self, access: SshAccess, *, timeout: float = 20) -> AsyncIterator[Connection]:
        """A connection to the node, closed at the end. Raises ConnectionLost, or HostKeyChanged when
        another machine answers there."""
        peer = f"{access.user}@{access.host}:{access.port}"
        with _border(peer, access):
            options = await _options(access, self._keepalive_interval_s)
            established = await self._establish(access.host, access.port, lambda: _connect(access, options), timeout)
        try:
            yield Connection(established, peer)
        finally:
            await _close(established)

    async def fetch_host_key(self, host: str, port: int, *, timeout: float = 20) -> str:
        """The key that the host presents now, in OpenSSH's format: only for a host that is met for the
        first time."""
        with _border(f"{host}:{port}"):
            key = await self._establish(host, port, lambda: _host_key(host, port), timeout)
        if key is None:
            raise ConnectionLost(f"{host}:{port} presents no host key")
        return " ".join(key.export_public_key("openssh").decode().split()[:2])

    async def _establish(self, host: str, port: int, handshake: Callable[[], Any], timeout: float) -> Any:
        """One handshake, made anew when the host dropped it before it was authenticated."""
        slots = self._handshakes.setdefault((host, port), asyncio.Semaphore(MOST_HANDSHAKES_PER_HOST))
        async with asyncio.timeout(timeout):
            for failures in range(1, MOST_CONNECT_TRIES):
                try:
                    async with slots:
                        return await handshake()
                except (asyncssh.ConnectionLost, ConnectionResetError, BrokenPipeError):
                    await asyncio.sleep(random.uniform(0.05, 0.2) * 2**failures)
            async with slots:
                return await handshake()


class Connection:
    """A connection to a node, for any number of commands."""

    def __init__(self, established: asyncssh.SSHClientConnection, peer: str) -> None:
        self._established = established
        self._peer = peer
        self._sessions = asyncio.Semaphore(MOST_SESSIONS_PER_CONNECTION)
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, command: str, stdin: bytes = b"", *, timeout: float | None = None) -> Completed:
        """Run a command to its end. Raises ConnectionLost when its outcome is unknown, and
        NodeCommandFailed when it prints more than MOST_OUTPUT_BYTES. Cancelling, or a timeout, leaves the
        remote process to itself."""
        try:
            async with asyncio.timeout(timeout), self.open(command) as stream:
                stream.send(stdin)
                stdout, stderr = await asyncio.gather(stream.read_all(), stream.read_all_stderr())
                return Completed(await stream.exit_status(), stdout, stderr)
        except TimeoutError as error:
            raise ConnectionLost(f"{self._peer} did not answer within {timeout} s") from error

    @asynccontextmanager
    async def open(self, command: str) -> AsyncIterator[Stream]:
        """Start a command and read what it prints while it runs. At the end its stdin is closed and its
        channel with it."""
        await self._sessions.acquire()
        opening = asyncio.ensure_future(
            self._established.create_process(command, encoding=None, window=_WINDOW_BYTES, request_pty=False)
        )
        try:
            with _border(self._peer):
                process = await asyncio.shield(opening)
            yield Stream(process, self._peer)
        finally:
            self._release(opening)

    async def wait_lost(self) -> None:
        """Returns when the connection has broken, or its peer has been silent for too long."""
        await self._established.wait_closed()

    def _release(self, opening: asyncio.Future[asyncssh.SSHClientProcess[bytes]]) -> None:
        """Close a session, also one that is only being opened, and let the next one in once it is closed:
        the host counts it for so long. Nobody else waits for that."""

        async def release() -> None:
            try:
                with suppress(Exception):  # whoever opened it has been told
                    process = await opening
                    process.close()
                    await process.channel.wait_closed()
            finally:
                self._sessions.release()

        closing = asyncio.create_task(release())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class Stream:
    """A command that runs."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], peer: str) -> None:
        self._process = process
        self._peer = peer

    def send(self, data: bytes) -> None:
        """Give the command all of its stdin, followed by the end of file."""
        with suppress(BrokenPipeError):  # it ended without reading; its exit status says the rest
            self._process.stdin.write(data)
            self._process.stdin.write_eof()

    async def read(self, n: int = _CHUNK_BYTES) -> bytes:
        """At most `n` bytes of stdout; empty at its end, which says nothing about how the command ended."""
        with _border(self._peer):
            return await self._process.stdout.read(n)

    async def read_all(self) -> bytes:
        """Everything that is still to come on stdout."""
        return await self._read_all(self._process.stdout)

    async def read_all_stderr(self) -> bytes:
        """Everything that is still to come on stderr."""
        return await self._read_all(self._process.stderr)

    async def exit_status(self) -> int:
        """How the command ended, once it has. Raises ConnectionLost when that is unknown."""
        with _border(self._peer):
            await self._process.wait_closed()
        returncode = self._process.returncode
        if returncode is None:
            raise ConnectionLost(f"the connection to {self._peer} broke before a command had ended")
        return returncode if returncode >= 0 else 128 - returncode

    async def _read_all(self, reader: asyncssh.SSHReader[bytes]) -> bytes:
        received = bytearray()
        with _border(self._peer):
            while data := await reader.read(_CHUNK_BYTES):
                received += data
                if len(received) > MOST_OUTPUT_BYTES:
                    raise NodeCommandFailed(f"a command on {self._peer} printed more than {MOST_OUTPUT_BYTES} bytes")
        return bytes(received)


async def _options(access: SshAccess, keepalive_interval_s: float) -> asyncssh.SSHClientConnectionOptions:
    if not access.host_key:
        raise HostKeyChanged(f"no host key of {access.host} is known, so that it cannot be told from another machine")
    try:
        pinned = asyncssh.import_public_key(access.host_key)
    except asyncssh.KeyImportError as error:
        raise HostKeyChanged(f"the known host key of {access.host} is no public key: {error}") from error
    options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
        **_ISOLATED,
        username=access.user,
        keepalive_interval=keepalive_interval_s,
        keepalive_count_max=KEEPALIVE_COUNT,
        client_keys=[access.identity_file],
        known_hosts=([pinned], [], []),
        # The pinned key's type where the host has it. The others, so that a host without it shows itself as
        # another machine, and does not just break off.
        server_host_key_algs=[name.decode() for name in pinned.sig_algorithms] + _COMMON_HOST_KEY_TYPES,
    )
    return options


async def _connect(access: SshAccess, options: asyncssh.SSHClientConnectionOptions) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(access.host, access.port, config=[], options=options)


async def _host_key(host: str, port: int) -> asyncssh.SSHKey | None:
    return await asyncssh.get_server_host_key(host, port, config=[])


async def _close(established: asyncssh.SSHClientConnection) -> None:
    """In order where the peer plays its part, and in any case soon."""
    established.close()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await established.wait_closed()
    finally:
        established.abort()


@contextmanager
def _border(peer: str, access: SshAccess | None = None) -> Iterator[None]:
    """Every error of the SSH library and of the operating system becomes one of ours here. Its calls let
    more through than they document (whatever a malformed packet provokes), and none of it says anything
    about what runs on the node."""
    try:
        yield
    except TowlineError:
        raise
    except Exception as error:
        raise translated(error, peer, access) from error


def translated(error: Exception, peer: str, access: SshAccess | None = None) -> TowlineError:
    """What an error that comes out of the SSH library means to us."""
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return HostKeyChanged(f"another machine answers as {peer}: its host key is not the one that is known")
        case asyncssh.PermissionDenied() if access:
            return ConnectionLost(
                f"{access.host}:{access.port} refuses user {access.user} with the identity file "
                f"{access.identity_file}: {error.reason}"
            )
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError() if access:
            return ConnectionLost(f"cannot use the identity file {access.identity_file} for {peer}: {error}")
        case OSError() if access and error.filename:
            return ConnectionLost(f"cannot read the identity file {access.identity_file} for {peer}: {error}")
        case asyncssh.ConnectionLost() | ConnectionResetError() | BrokenPipeError():
            return ConnectionLost(f"the connection to {peer} broke")
        case TimeoutError():
            return ConnectionLost(f"{peer} did not answer in time")
        case _:
            return ConnectionLost(f"no connection to {peer}: {str(error) or type(error).__name__}")
