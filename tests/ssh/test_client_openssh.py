"""What only OpenSSH's server shows: frozen machines, several host keys, its stock limits; and the table of
errors."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.openssh import OpenSsh, open_ssh
from towline.errors import ConnectionLost, HostKeyChanged, TowlineError
from towline.ssh import asyncssh
from towline.ssh.client import SshClient, translated


async def test_a_frozen_machine_is_noticed_and_does_not_hold_up_the_close(openssh: OpenSsh) -> None:
    async with SshClient(keepalive_interval_s=0.2).connect(openssh.access) as connection:
        running = asyncio.create_task(connection.run("sleep 1000"))
        await connection.run("true")
        openssh.freeze()
        await connection.wait_lost()
        with pytest.raises(ConnectionLost):
            await running
    openssh.thaw()


async def test_leaving_a_connection_to_a_frozen_machine_takes_a_moment(openssh: OpenSsh, ssh: SshClient) -> None:
    async with ssh.connect(openssh.access) as connection:
        await connection.run("true")
        openssh.freeze()
        left = time.monotonic()
    assert time.monotonic() - left < 4
    openssh.thaw()


async def test_a_frozen_machine_cannot_be_connected_to_within_the_timeout(openssh: OpenSsh, ssh: SshClient) -> None:
    openssh.freeze()
    with pytest.raises(ConnectionLost, match="did not answer in time"):
        async with ssh.connect(openssh.access, timeout=0.5):
            pass
    openssh.thaw()


async def test_the_pinned_key_is_the_one_that_is_asked_for(ssh: SshClient, tmp_path: Path) -> None:
    with open_ssh(tmp_path / "node", host_key_types="rsa ecdsa ed25519") as server:
        for kind in ("rsa", "ecdsa", "ed25519"):
            async with ssh.connect(replace(server.access, host_key=server.host_key(kind))) as connection:
                assert (await connection.run("true")).exit_status == 0


async def test_a_host_without_a_key_of_the_pinned_type_is_another_machine(ssh: SshClient, tmp_path: Path) -> None:
    ed25519 = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    with open_ssh(tmp_path / "node", host_key_types="ecdsa") as server, pytest.raises(HostKeyChanged):
        async with ssh.connect(replace(server.access, host_key=ed25519)):
            pass


async def test_a_host_that_drops_handshakes_at_random_is_tried_again(ssh: SshClient, tmp_path: Path) -> None:
    with open_ssh(tmp_path / "node", "MaxStartups 4:50:30") as server:

        async def ask() -> int:
            async with ssh.connect(server.access, timeout=60) as connection:
                return (await connection.run("true")).exit_status

        assert set(await asyncio.gather(*(ask() for _ in range(30)))) == {0}


async def test_the_configuration_and_keys_of_whoever_runs_this_are_not_used(
    openssh: OpenSsh, ssh: SshClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  Port 1\n  ProxyCommand false\n  User nobody\n")
    (tmp_path / ".ssh" / "ca-bundle.crt").write_text("no certificate")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "no-agent"))
    async with ssh.connect(openssh.access) as connection:
        assert (await connection.run("echo ${SSH_AUTH_SOCK:-none}")).stdout == b"none\n"


EXPORTED = [each for each in vars(asyncssh).values() if isinstance(each, type) and issubclass(each, Exception)]


@pytest.mark.parametrize("kind", EXPORTED, ids=lambda kind: kind.__name__)
def test_every_exception_of_the_library_means_something_to_us(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "reason")
    error.reason = "reason"  # type: ignore[attr-defined]
    ours = translated(error, "user@host:22")
    assert isinstance(ours, TowlineError)
    assert isinstance(ours, HostKeyChanged) == (kind is asyncssh.HostKeyNotVerifiable)
    assert isinstance(ours, ConnectionLost)
    assert "user@host:22" in str(ours)
