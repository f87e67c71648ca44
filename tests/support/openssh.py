"""OpenSSH's own server, as a node: with a home directory of its own, and means to cut, freeze and replace
it."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.shells import end_all, search_path
from towline.providers.protocol import SshAccess

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/bin") or "/usr/sbin/sshd"


class OpenSsh:
    """An sshd on a free port of this machine."""

    def __init__(self, directory: Path, *settings: str, shell: str = "dash", host_key_types: str = "ed25519") -> None:
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir(parents=True)
        self.identity = directory / "identity"
        _make_key(self.identity, "ed25519")
        self.types = host_key_types.split()
        self.new_host_keys(*self.types)
        self.port = _free_port()
        self.settings = [f'SetEnv HOME={self.home} PATH="{search_path(shell, directory / "bin")}"', *settings]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start serving; returns when it does."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text("\n".join([*self._config(), *self.settings]) + "\n")
        command = [SSHD, "-D", "-e", "-f", str(config)]
        with (self.directory / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while True:
            assert self._process.poll() is None, (self.directory / "sshd.log").read_text()
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return

    def _config(self) -> list[str]:
        authorized = self.directory / "authorized_keys"
        authorized.write_text(self.identity.with_suffix(".pub").read_text())
        authorized.chmod(0o600)
        keys = [f"HostKey {self.directory}/host_{kind}" for kind in self.types]
        return [
            "ListenAddress 127.0.0.1",
            f"Port {self.port}",
            *keys,
            f"AuthorizedKeysFile {authorized}",
            "PidFile none",
            "StrictModes no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
        ]

    def new_host_keys(self, *types: str) -> None:
        """Other host keys from the next start on: another machine, for whoever knew this one."""
        self.types = list(types)
        for kind in types:
            for path in self.directory.glob(f"host_{kind}*"):
                path.unlink()
            _make_key(self.directory / f"host_{kind}", kind)

    def host_key(self, kind: str = "ed25519") -> str:
        """The public host key of one type, without a comment."""
        return " ".join((self.directory / f"host_{kind}.pub").read_text().split()[:2])

    @property
    def access(self) -> SshAccess:
        """How to reach it."""
        return SshAccess("127.0.0.1", self.port, getpass.getuser(), str(self.identity), self.host_key(self.types[0]))

    def cut(self) -> None:
        """Break every connection; what the sessions started is left alone."""
        for process in self._sshds()[1:]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def freeze(self) -> None:
        """The machine answers no more, and its connections stay open."""
        for process in self._sshds():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """It goes on as if nothing had been."""
        for process in self._sshds():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def stop(self) -> None:
        """No longer serve, and break every connection."""
        if self._process and self._process.poll() is None:
            self.cut()
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def sessions(self) -> list[psutil.Process]:
        """The processes of commands that run over SSH now."""
        return [child for sshd in self._sshds() for child in sshd.children() if _name(child) not in ("sshd", "")]

    def _sshds(self) -> list[psutil.Process]:
        """The listening one first."""
        assert self._process
        main = psutil.Process(self._process.pid)
        return [main, *(child for child in main.children(recursive=True) if _name(child) == "sshd")]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _make_key(path: Path, kind: str) -> None:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def open_ssh(
    directory: Path, *settings: str, shell: str = "dash", host_key_types: str = "ed25519"
) -> Iterator[OpenSsh]:
    """A server that runs; it and all that was started over it is gone at the end."""
    server = OpenSsh(directory, *settings, shell=shell, host_key_types=host_key_types)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        end_all(server.home)


@pytest.fixture
def openssh(tmp_path: Path) -> Iterator[OpenSsh]:
    """OpenSSH's server with stock limits."""
    with open_ssh(tmp_path / "openssh") as server:
        yield server
