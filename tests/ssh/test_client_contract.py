"""What the rest of the project relies on, on an SSH server in this process and on OpenSSH's."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.asyncssh_server import InProcessServer
from tests.support.openssh import OpenSsh
from towline.errors import ConnectionLost, HostKeyChanged, NodeCommandFailed
from towline.ssh.client import SshClient

Server = OpenSsh | InProcessServer
EVERY_BYTE = bytes(range(256)) * 4


async def settle(result: Any) -> None:
    """The two servers differ in whether stopping is awaited."""
    if inspect.isawaitable(result):
        await result


async def test_a_command_gives_its_exit_status_and_both_its_outputs(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        done = await connection.run("echo out; echo err >&2; exit 7")
        assert (done.exit_status, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
        assert (await connection.run("kill -9 $$")).exit_status == 137
        assert (await connection.run("exit 300")).exit_status == 44


async def test_any_bytes_pass_both_ways(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        assert (await connection.run("cat", EVERY_BYTE)).stdout == EVERY_BYTE
        large = EVERY_BYTE * 3000
        assert (await connection.run("cat", large)).stdout == large


async def test_stdin_that_nobody_reads_is_no_error(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        assert (await connection.run("exec <&-; exit 3", b"x" * 3_000_000)).exit_status == 3


async def test_output_beyond_the_limit_is_refused_and_the_connection_goes_on(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        with pytest.raises(NodeCommandFailed, match="more than"):
            await connection.run("head -c 6000000 /dev/zero")
        assert (await connection.run("echo on")).stdout == b"on\n"


async def test_a_stream_is_read_while_the_command_runs(ssh: SshClient, server: Server) -> None:
    async with (
        ssh.connect(server.access) as connection,
        connection.open("echo first; read -r _; exit 5") as stream,
    ):
        assert await stream.read() == b"first\n"
        stream.send(b"go\n")
        assert await stream.read() == b""
        assert await stream.exit_status() == 5


async def test_leaving_a_stream_ends_a_command_that_watches_its_stdin(
    ssh: SshClient, server: Server, tmp_path: Path
) -> None:
    async with ssh.connect(server.access) as connection:
        command = f"mkfifo {tmp_path}/ended; echo ready; cat >/dev/null; echo yes > {tmp_path}/ended"
        async with connection.open(command) as stream:
            assert await stream.read() == b"ready\n"
        assert (await connection.run(f"cat {tmp_path}/ended", timeout=20)).stdout == b"yes\n"


async def test_a_connection_that_breaks_is_neither_success_nor_failure(ssh: SshClient, server: Server) -> None:
    async with (
        ssh.connect(server.access) as connection,
        connection.open("echo ready; read -r _; exit 0") as stream,
    ):
        assert await stream.read() == b"ready\n"
        running = asyncio.create_task(connection.run("sleep 1000"))
        lost = asyncio.create_task(connection.wait_lost())
        second = await connection.run("echo second")
        assert second.stdout == b"second\n"
        server.cut()
        await lost
        with pytest.raises(ConnectionLost):
            await running
        with pytest.raises(ConnectionLost):
            await stream.exit_status()
        with pytest.raises(ConnectionLost):
            await connection.run("true")


async def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        with pytest.raises(ConnectionLost, match=r"did not answer within 0\.2 s"):
            await connection.run("sleep 1000", timeout=0.2)
        assert (await connection.run("true")).exit_status == 0


async def test_cancelling_leaves_the_connection_usable(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        for _ in range(12):
            running = asyncio.create_task(connection.run("cat; sleep 0.01", b"", timeout=60))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await connection.run("echo on")).stdout == b"on\n"


async def test_any_number_of_commands_may_be_asked_for_at_once(ssh: SshClient, server: Server) -> None:
    async with ssh.connect(server.access) as connection:
        done = await asyncio.gather(*(connection.run(f"sleep 0.05; echo {n}") for n in range(40)))
        assert [each.stdout for each in done] == [f"{n}\n".encode() for n in range(40)]


async def test_sixty_connections_at_once_are_all_made(ssh: SshClient, server: Server) -> None:
    async def ask(number: int) -> bytes:
        async with ssh.connect(server.access, timeout=60) as connection:
            return (await connection.run(f"echo {number}")).stdout

    assert await asyncio.gather(*(ask(n) for n in range(60))) == [f"{n}\n".encode() for n in range(60)]


async def test_another_host_key_is_another_machine(ssh: SshClient, server: Server) -> None:
    known = server.access
    await settle(server.stop())
    server.new_host_keys("ed25519")
    await settle(server.start())
    with pytest.raises(HostKeyChanged, match="another machine"):
        async with ssh.connect(known):
            pass
    async with ssh.connect(server.access) as connection:
        assert (await connection.run("true")).exit_status == 0


async def test_the_host_key_of_a_first_meeting_is_the_one_that_is_pinned(ssh: SshClient, server: Server) -> None:
    assert await ssh.fetch_host_key(server.access.host, server.access.port) == server.access.host_key


async def test_an_unknown_or_unreadable_host_key_is_never_trusted(ssh: SshClient, server: Server) -> None:
    for key in ("", "no key at all"):
        with pytest.raises(HostKeyChanged):
            async with ssh.connect(replace(server.access, host_key=key)):
                pass


async def test_a_refused_login_names_user_host_and_identity_file(
    ssh: SshClient, server: Server, tmp_path: Path
) -> None:
    other = OpenSshKey(tmp_path / "other")
    with pytest.raises(ConnectionLost, match="refuses user") as refused:
        async with ssh.connect(replace(server.access, identity_file=str(other.path))):
            pass
    for word in (server.access.user, server.access.host, str(other.path)):
        assert word in str(refused.value)


async def test_an_identity_file_that_cannot_be_used_is_named(ssh: SshClient, server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("not a key")
    for path in (tmp_path / "absent", broken):
        with pytest.raises(ConnectionLost, match=path.name):
            async with ssh.connect(replace(server.access, identity_file=str(path))):
                pass


async def test_nobody_listening_is_a_lost_connection(ssh: SshClient, server: Server) -> None:
    access = server.access
    await settle(server.stop())
    with pytest.raises(ConnectionLost):
        async with ssh.connect(access):
            pass
    with pytest.raises(ConnectionLost):
        await ssh.fetch_host_key(access.host, access.port)


class OpenSshKey:
    """A key that no server knows."""

    def __init__(self, path: Path) -> None:
        from towline.ssh import asyncssh

        self.path = path
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(path)
