"""The provider `local`: a node is a throw-away SSH host on this machine's loopback, a detached process that
dies as one.

A node is a directory, `$TOWLINE_HOME/nodes/<node id>/`: `wanted.json` (whose it is), `process.json` (who it is),
`ready.json` (where it listens), its home, its host key and its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from towline.contract import Node, from_json
from towline.errors import PrecheckFailed, ProviderUnavailable
from towline.finishing import to_its_end
from towline.processes import Identity, find, identity
from towline.providers.protocol import (
    NodeReport,
    NodeState,
    NodeTag,
    Offer,
    ProviderCheck,
    Request,
    SshAccess,
    TaggedNode,
)
from towline.ssh.server import make_key

_START_LIMIT_S = 30.0
_END_LIMIT_S = 10.0
_NODE_ID = re.compile(r"local-[0-9a-f]{12}")
_GIB = 1024**3


class LocalProvider:
    """Nodes on this machine, under `home`. One that nobody has contacted for `lease_s` ends by itself."""

    name = "local"
    preemption_notice_s = 0.0

    def __init__(self, home: Path, lease_s: float = 24 * 3600.0) -> None:
        self._nodes = home / "nodes"
        self._keys = home / "ssh"
        self._lease_s = lease_s

    async def check(self) -> list[ProviderCheck]:
        """Always usable where there is a bash."""
        if not Path("/bin/bash").exists():
            return [ProviderCheck(self.name, False, "/bin/bash is missing", "apt-get install bash")]
        how = "each node a PID namespace" if _namespace() else "nodes without a PID namespace of their own"
        return [ProviderCheck(self.name, True, f"{_machine()}; {how}")]

    async def offers(self, request: Request) -> list[Offer]:
        """This machine, when it is large enough."""
        lacking = _lacking(request, self._nodes.parent)
        if lacking:
            raise PrecheckFailed(f"local: {'; '.join(lacking)}; this machine has {_machine()}")
        cpus, memory = float(os.cpu_count() or 1), psutil.virtual_memory().total / _GIB
        return [Offer(self.name, spot=request.use_spot, hourly_cost=0.0, cpus=cpus, memory_gib=memory)]

    async def create(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """Start the node's process; the same tag again finds it, also when it has died since."""
        return await to_its_end(asyncio.to_thread(self._create, tag, request, offer))

    async def describe(self, node: Node) -> NodeReport:
        """By its process: a node is gone when that is."""
        directory = self._directory(node.node_id)
        process = _process(directory)
        if process is not None:
            return NodeReport(NodeState.RUNNING)
        if (directory / "preempted").exists():
            return NodeReport(NodeState.GONE, preempted=True, reason="preempted by `towline nodes preempt`")
        return NodeReport(NodeState.GONE, reason="its process is gone")

    async def terminate(self, node: Node) -> None:
        """Kill the process, wait for its end, and remove the directory."""
        await asyncio.to_thread(self._terminate, node.node_id)

    async def list(self, owner: str | None, job_key: str | None = None) -> list[TaggedNode]:
        """The nodes that have a directory: also dead ones, until they are released."""
        found = [self._tagged(directory) for directory in sorted(self._nodes.glob("local-*"))]
        return [
            each for each in found if each and owner in (None, each.tag.owner) and job_key in (None, each.tag.job_key)
        ]

    def access(self, node: Node) -> SshAccess:
        """By the client key of this installation."""
        return SshAccess(node.host, node.port, node.user, str(self._keys / "id_ed25519"), node.host_key)

    def preempt(self, node_id: str) -> bool:
        """Take a node away without warning; False when there is no such living node."""
        directory = self._directory(node_id)
        process = _process(directory)
        if process is None:
            return False
        (directory / "preempted").touch()
        self._end(directory)
        return True

    def _create(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        node_id = _node_id(tag)
        directory = self._directory(node_id)
        self._keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._nodes.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self._nodes / f"{node_id}.lock", timeout=_START_LIMIT_S):
                if not (directory / "ready.json").exists():
                    self._remove(directory)  # what a creator that died halfway has left
                    self._start(directory, tag, offer, min(request.lease_s or self._lease_s, self._lease_s))
        except Timeout as error:
            raise ProviderUnavailable(f"local: node {node_id} is being created by another worker") from error
        tagged = self._tagged(directory)
        if tagged is None:
            raise ProviderUnavailable(f"local: node {node_id} was taken away while it was created")
        return tagged.node

    def _start(self, directory: Path, tag: NodeTag, offer: Offer, lease_s: float) -> None:
        (directory / "home").mkdir(mode=0o700, parents=True)
        directory.chmod(0o700)
        wanted = {
            "tag": asdict(tag),
            "spot": offer.spot,
            "hourly_cost": offer.hourly_cost,
            "created_at": datetime.now(UTC).isoformat(),
            "authorized_key": make_key(self._keys / "id_ed25519"),
            "lease_s": lease_s,
        }
        _write(directory / "wanted.json", wanted)
        command = [*_namespace(), sys.executable, "-m", "towline.providers.local_node", str(directory)]
        with (
            (directory / "log").open("ab") as log,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=_node_process_environment(directory),
                start_new_session=True,
            ) as process,
        ):
            _write(directory / "process.json", {"identity": identity(process.pid)})
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"g")
            process.stdin.close()
            ready = select.select([process.stdout], [], [], _START_LIMIT_S)[0] and process.stdout.readline()
            process.returncode = 0  # it lives on: leaving this block must not wait for it
        if not ready:
            self._end(directory)
            detail = (directory / "log").read_text(errors="replace").strip()[-400:] or "it wrote nothing"
            raise ProviderUnavailable(f"local: the node's process does not come up: {detail}")

    def _terminate(self, node_id: str) -> None:
        directory = self._directory(node_id)
        if not directory.exists():
            return
        self._remove(directory)
        (self._nodes / f"{node_id}.lock").unlink(missing_ok=True)

    def _remove(self, directory: Path) -> None:
        if directory.exists():
            self._end(directory)
        for _ in range(5):  # what died a moment ago may have been writing
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                return
        raise ProviderUnavailable(f"local: {directory} could not be removed")

    def _end(self, directory: Path) -> None:
        """Kill the node's process and whatever ran there: the namespace does that, or the mark in the environment."""
        process = _process(directory)
        if process is not None:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
                process.wait(_END_LIMIT_S)
        _kill_marked(directory)
        known = _identity(directory)
        with contextlib.suppress(ChildProcessError):
            if known:
                os.waitpid(known.pid, os.WNOHANG)  # where it was a child of ours, nobody else reaps it

    def _directory(self, node_id: str) -> Path:
        if not _NODE_ID.fullmatch(node_id):
            raise PrecheckFailed(f"{node_id!r} is not the id of a local node; see `towline nodes`")
        return self._nodes / node_id

    def _tagged(self, directory: Path) -> TaggedNode | None:
        """The node in a directory; None while, or after, it is not one."""
        wanted, ready = _read(directory / "wanted.json"), _read(directory / "ready.json")
        tag = from_json(NodeTag, wanted["tag"]) if wanted else None
        if wanted is None or tag is None:
            return None  # not one of ours, or of a version that nobody here understands
        process = _process(directory)
        node = Node(
            node_id=directory.name,
            rank=tag.rank,
            provider=self.name,
            host="127.0.0.1",
            port=ready["port"] if ready else 0,
            user=_user(),
            host_key=ready["host_key"] if ready else "",
            spot=wanted["spot"],
            hourly_cost=wanted["hourly_cost"],
            created_at=wanted["created_at"],
        )
        state = NodeState.GONE if process is None else NodeState.RUNNING if ready else NodeState.STARTING
        return TaggedNode(node, tag, state, process.pid if process else None)


def _node_id(tag: NodeTag) -> str:
    return "local-" + hashlib.sha256(repr(tag).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "towline"


@functools.cache
def _namespace() -> list[str]:
    """The command that makes a process the init of its own PID namespace, or nothing where the system forbids it."""
    own = ["--pid", "--fork", "--kill-child", "--mount-proc"]
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    command = ["unshare", *user, *own]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=5, stdin=subprocess.DEVNULL)
        if tried.returncode == 0:
            return command
    return []


def _node_process_environment(directory: Path) -> dict[str, str]:
    """What the node's own process needs, and nothing secret: PATH and where Python finds Towline."""
    kept = ("PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "HOME")
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "PYTHONPATH": path,
        "TOWLINE_NODE": str(directory),
    }


def _identity(directory: Path) -> Identity | None:
    known = _read(directory / "process.json")
    return Identity(*known["identity"]) if known and known.get("identity") else None


def _process(directory: Path) -> psutil.Process | None:
    """The node's living process; never another that got its number."""
    try:
        return find(_identity(directory))
    except OSError as error:
        raise ProviderUnavailable(f"local: {directory.name} cannot be judged now: {error.strerror}") from error


def _kill_marked(directory: Path) -> None:
    """Kill whatever carries the node's mark, until two looks in a row find nothing."""
    empty = 0
    while empty < 2:
        marked = _marked(directory)
        for each in marked:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(marked, timeout=_END_LIMIT_S)
        empty = 0 if marked else empty + 1


def _marked(directory: Path) -> list[psutil.Process]:
    mark = f"TOWLINE_NODE={directory}".encode()  # the whole path: ids may repeat under another home
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def _machine() -> str:
    return f"{os.cpu_count()} CPUs and {psutil.virtual_memory().total / _GIB:.1f} GiB of memory"


def _lacking(request: Request, home: Path) -> list[str]:
    """What the request wants that this machine has not."""
    cpus, memory = os.cpu_count() or 1, psutil.virtual_memory().total / _GIB
    lacking = []
    if request.cpus is not None and request.cpus > cpus:
        lacking.append(f"cpus: {request.cpus:g} wanted")
    if request.memory_gib is not None and request.memory_gib > memory:
        lacking.append(f"memory: {request.memory_gib:g} GiB wanted")
    if request.accelerators:
        wanted = ", ".join(f"{count:g} {name}" for name, count in request.accelerators)
        lacking.append(f"accelerators: {wanted} wanted, and local nodes have none")
    if request.instance_type:
        lacking.append(f"instance_type: there is no {request.instance_type} here")
    if request.image_id:
        lacking.append("image_id: local nodes have no images")
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free / _GIB
    if request.disk_gib is not None and request.disk_gib > free:
        lacking.append(f"disk_size: {request.disk_gib} GB wanted, {free:.0f} are free")
    return lacking


def _read(path: Path) -> dict[str, Any] | None:
    """What a file of a node says; None where there is none, or only half of one."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise ProviderUnavailable(f"local: {path} cannot be read now: {error.strerror}") from error
    return data


def _write(path: Path, data: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data))
    part.rename(path)
