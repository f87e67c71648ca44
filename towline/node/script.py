"""The node script as text in and text out: command lines, payloads, and the answers read back.

Nothing here knows how a command reaches a node. No text of a user and no value of an environment variable
is ever part of a command line: they travel on stdin.
"""

from __future__ import annotations

import hashlib
import io
import re
import secrets
import shlex
import tarfile
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

PARTS = ("attempts.sh", "processes.sh", "supervisor.sh", "waiting.sh", "towline-node.sh")

NOT_INSTALLED = 97
"""Exit code of `command` where the node does not have this version of the script yet."""
AGAIN = 75
"""Exit code of `follow`: not all has been read; call again with the offset reached."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN_IF_INSTALLED = f'f="$HOME/$1"; [ -f "$f" ] || exit {NOT_INSTALLED}; shift; exec sh "$f" "$@"'
_INSTALL = (
    'f="$HOME/$1"; part="$f.part.$$"; umask 077; mkdir -p "${f%/*}" && cat >"$part" && '
    '[ "$(($(wc -c <"$part")))" -eq "$2" ] && mv -f "$part" "$f"'
)


@dataclass(frozen=True)
class Commands:
    """What a task runs on a node. `envs` is the whole environment that is given to it, TOWLINE_* included, but for
    `secrets`, which are variables too and left in no file."""

    setup: str | None
    run: str | None
    envs: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class NodeAttempt:
    """An attempt as its node knows it. `state` is `running`, `ended` (with an exit code), `rebooted` (the
    node was, while it ran) or `supervisor_killed` (so nobody knows the exit code); `phase` is `setup` or
    `run`."""

    attempt: int
    state: str
    phase: str
    exit_code: int | None
    started_at: str | None
    ended_at: str | None


class UnreadableAnswer(ValueError):
    """The node's answer is not one that the script gives."""


@cache
def source() -> bytes:
    """The whole node script."""
    folder = resources.files(__package__)
    return b"\n".join((folder / part).read_bytes() for part in PARTS)


@cache
def path() -> str:
    """Where a node has the script, below its user's home: one name for each content."""
    return f".towline/bin/towline-node-{hashlib.sha256(source()).hexdigest()[:12]}.sh"


def new_nonce() -> str:
    """A line that no login shell prints by itself."""
    return f"towline-{secrets.token_hex(12)}"


def command(nonce: str, name: str, job_key: str, task_index: int, *arguments: int) -> str:
    """The command line that calls the node script. It ends with NOT_INSTALLED where there is none."""
    words = [path(), nonce, name, job_key, str(task_index), *(str(argument) for argument in arguments)]
    return _shell(_RUN_IF_INSTALLED, words)


def install_command() -> str:
    """The command line that installs the node script, given `source()` on stdin. Any number may do so at
    once."""
    return _shell(_INSTALL, [path(), str(len(source()))])


def payload(commands: Commands) -> bytes:
    """What `ensure` reads on stdin: a tar whose last member says that it is complete."""
    files = {"setup": commands.setup, "run": commands.run, "env": environment_file(commands.envs)}
    if commands.secrets:
        files["secrets"] = environment_file(commands.secrets)
    files["end"] = ""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items():
            if text is not None:
                content = _bytes(text)
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o600
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def environment_file(envs: dict[str, str]) -> str:
    """Shell text that exports `envs`, each value byte for byte."""
    lines = []
    for name, value in envs.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"{name!r} cannot be an environment variable")
        quoted = value.replace("'", "'\\''")
        lines.append(f"export {name}='{quoted}'\n")
    return "".join(lines)


def hundredths(seconds: float) -> int:
    """A duration as the node script counts it."""
    return max(0, round(seconds * 100))


class Answer:
    """Takes in what a call prints and gives out what comes after the nonce's line, whatever a login shell
    said before."""

    def __init__(self, nonce: str) -> None:
        self._mark = f"\n{nonce}\n".encode()
        self._before: bytes | None = b"\n"

    @property
    def begun(self) -> bool:
        """Whether the nonce has been seen."""
        return self._before is None

    def feed(self, data: bytes) -> bytes:
        """The bytes of the answer in `data`."""
        if self._before is None:
            return data
        self._before += data
        _, found, after = self._before.partition(self._mark)
        if found:
            self._before = None
            return after
        self._before = self._before[-len(self._mark) :]
        return b""


def parse_attempt(line: str) -> NodeAttempt:
    """Reads `attempt NUMBER STATE PHASE CODE STARTED_AT ENDED_AT`."""
    match line.split():
        case ["attempt", number, state, phase, code, started_at, ended_at]:
            return NodeAttempt(
                attempt=int(number),
                state=state,
                phase=phase,
                exit_code=None if code == "-" else int(code),
                started_at=None if started_at == "-" else started_at,
                ended_at=None if ended_at == "-" else ended_at,
            )
    raise UnreadableAnswer(line[:200])


def _shell(program: str, words: list[str]) -> str:
    """Any login shell, also one that is not POSIX, hands this on to sh unchanged."""
    return "exec sh -c " + " ".join(shlex.quote(word) for word in [program, "towline", *words])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
