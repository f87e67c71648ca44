"""The provider `ssh`: machines that you already have. A node is a host with a task's *claim* on it, one task at a time.

The claim is a directory on the host, made by one rename, so that any number of workers and installations agree
on who holds
the host without knowing of each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from towline.contract import Node, from_json
from towline.errors import (
    ConnectionLost,
    HostKeyChanged,
    NoCapacity,
    PrecheckFailed,
    ProviderUnavailable,
)
from towline.finishing import to_its_end
from towline.providers.pools import Host, load_pools
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
from towline.ssh.client import Connection, SshClient
from towline.supervision import NodeTask

_HOST_LIMIT_S = 20.0
_MOST_AT_ONCE = 16
_MARK = b"\nTOWLINE-CLAIM\n"
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")

_CLAIM = """
umask 077; mkdir -p "$HOME/.towline" && cd "$HOME/.towline" || exit 1
part=$(mktemp -d claim.XXXXXXXX) && cat > "$part/tag" || exit 1
mv -T "$part" claim 2>/dev/null || rm -rf "$part"
printf '\\n%s\\n' TOWLINE-CLAIM; cat claim/tag
"""
_SHOW = """
cd "$HOME" || exit 1
printf '\\n%s\\n' TOWLINE-CLAIM
if [ -d .towline/claim ]; then cat .towline/claim/tag; fi
"""
_FREE = """
cd "$HOME/.towline" || exit 1
gone=claim.free.$$; mv -T claim "$gone" && rm -rf "$gone" || exit 1
printf '\\n%s\\n' TOWLINE-CLAIM
"""


class SshPoolProvider:
    """Hosts of the pools in `pools_file`; their keys are pinned in `known_hosts` at first use."""

    name = "ssh"
    preemption_notice_s = 0.0

    def __init__(self, pools_file: Path, known_hosts: Path, ssh: SshClient) -> None:
        self._pools_file = pools_file
        self._known_hosts = known_hosts
        self._ssh = ssh
        self._gate = asyncio.Semaphore(_MOST_AT_ONCE)

    async def check(self) -> list[ProviderCheck]:
        """A line for each pool."""
        pools = load_pools(self._pools_file)
        if not pools:
            return [ProviderCheck(self.name, False, "no pools", f"describe your machines in {self._pools_file}")]
        return [await self._check_pool(name, hosts) for name, hosts in pools.items()]

    async def _check_pool(self, name: str, hosts: list[Host]) -> ProviderCheck:
        answers = await asyncio.gather(*(self._holder(host) for host in hosts), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ConnectionLost):
                raise answer
        lost = [str(answer) for answer in answers if isinstance(answer, ConnectionLost)]
        held = sum(isinstance(answer, NodeTag) for answer in answers)
        detail = f"pool {name}: {len(hosts)} hosts, {held} held, {len(lost)} unreachable"
        remedy = "; ".join(lost)[:400]
        return ProviderCheck(self.name, len(lost) < len(hosts), detail, remedy)

    async def offers(self, request: Request) -> list[Offer]:
        """The pools that the request names; whether a host is large enough is its owner's affair."""
        pools = load_pools(self._pools_file)
        wanted = (request.infra or "").split("/")[1:]
        names = [name for name in pools if not wanted or name == wanted[0]]
        if not names:
            what = f"no pool {wanted[0]}" if wanted else "no pools"
            known = ", ".join(pools) or "none"
            raise PrecheckFailed(f"ssh: {what} in {self._pools_file}; pools there: {known}")
        return [Offer(self.name, region=name, spot=request.use_spot) for name in names]

    async def create(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """Claim the first free host of the pool; the same tag again finds the host it holds."""
        hosts = load_pools(self._pools_file).get(offer.region or "", [])
        answers = await asyncio.gather(*(self._holder_or_error(host) for host in hosts))
        for host, holder in zip(hosts, answers, strict=True):
            if holder == tag:
                return self._node(host, tag)
        notes = []
        for host, holder in zip(hosts, answers, strict=True):
            if holder is None:
                holder = await to_its_end(self._claim_or_error(host, tag))
            if holder == tag:
                return self._node(host, tag)
            notes.append(holder if isinstance(holder, str) else _held(host, holder))
        text = f"ssh: no free host in pool {offer.region}: {'; '.join(notes)}"
        raise NoCapacity(text)

    async def describe(self, node: Node) -> NodeReport:
        """By the claim. A machine of one's own has no provider who could judge it while it cannot be reached."""
        try:
            async with self._ssh.connect(self.access(node)) as connection:
                holder = _tag(await _ask(connection, _SHOW))
        except HostKeyChanged:
            return NodeReport(NodeState.GONE, reason=f"another machine answers at {node.host}:{node.port}")
        except ConnectionLost as error:
            return NodeReport(NodeState.RUNNING, reason=f"cannot be reached: {error}")
        if holder is None or _node_id(self._host(node), holder) != node.node_id:
            return NodeReport(NodeState.GONE, reason=f"its claim on {node.host} was taken away")
        return NodeReport(NodeState.RUNNING)

    async def terminate(self, node: Node) -> None:
        """End what the task left on the host and give up the claim, if it is still the node's own."""
        try:
            async with self._ssh.connect(self.access(node)) as connection:
                holder = _tag(await _ask(connection, _SHOW))
                if holder is None or _node_id(self._host(node), holder) != node.node_id:
                    return
                task = NodeTask(connection, holder.job_key, holder.task_index)
                await task.stop(0)
                await task.remove()  # but the mark that it is closed: whoever comes late starts nothing here
                await _ask(connection, _FREE)
        except HostKeyChanged:
            return  # another machine: nothing of ours is there
        except ConnectionLost as error:
            raise ProviderUnavailable(
                f"ssh: {node.host}:{node.port} cannot be reached to give it back: {error}"
            ) from error

    async def list(self, owner: str | None, job_key: str | None = None) -> list[TaggedNode]:
        """The claims on all hosts that can be reached."""
        hosts = [host for pool in load_pools(self._pools_file).values() for host in pool]
        answers = await asyncio.gather(*(self._holder_or_error(host) for host in hosts))
        found = []
        for host, tag in zip(hosts, answers, strict=True):
            if isinstance(tag, NodeTag) and owner in (None, tag.owner) and job_key in (None, tag.job_key):
                found.append(TaggedNode(self._node(host, tag), tag, NodeState.RUNNING))
        return found

    def access(self, node: Node) -> SshAccess:
        """With the identity file of the host's pool."""
        return SshAccess(node.host, node.port, node.user, self._host(node).identity_file, node.host_key)

    def _host(self, node: Node) -> Host:
        for host in load_pools(self._pools_file).get(node.region or "", []):
            if (host.address, host.port) == (node.host, node.port):
                return host
        raise ProviderUnavailable(
            f"ssh: {node.host}:{node.port} is no longer in pool {node.region} of {self._pools_file}"
        )

    def _node(self, host: Host, tag: NodeTag) -> Node:
        return Node(
            node_id=_node_id(host, tag),
            rank=tag.rank,
            provider=self.name,
            host=host.address,
            port=host.port,
            user=host.user,
            host_key=self._pinned(host) or "",
            region=host.pool,
            created_at=datetime.now(UTC).isoformat(),
        )

    async def _holder_or_error(self, host: Host) -> NodeTag | str | None:
        try:
            return await self._holder(host)
        except ConnectionLost as error:
            return str(error)

    async def _claim_or_error(self, host: Host, tag: NodeTag) -> NodeTag | str | None:
        try:
            async with (
                self._gate,
                self._ssh.connect(await self._access(host), timeout=_HOST_LIMIT_S) as connection,
            ):
                return _tag(await _ask(connection, _CLAIM, json.dumps(asdict(tag)).encode()))
        except ConnectionLost as error:
            return str(error)

    async def _holder(self, host: Host) -> NodeTag | None:
        async with (
            self._gate,
            self._ssh.connect(await self._access(host), timeout=_HOST_LIMIT_S) as connection,
        ):
            return _tag(await _ask(connection, _SHOW))

    async def _access(self, host: Host) -> SshAccess:
        pinned = self._pinned(host) or await self._pin(host)
        return SshAccess(host.address, host.port, host.user, host.identity_file, pinned)

    def _pinned(self, host: Host) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            for line in self._known_hosts.read_text().splitlines():
                place, _, key = line.partition(" ")
                if place == _place(host):
                    return key
        return None

    async def _pin(self, host: Host) -> str:
        """First use: what the host presents now is what it must present for ever."""
        key = await self._ssh.fetch_host_key(host.address, host.port)
        return await asyncio.to_thread(self._write_down, host, key)

    def _write_down(self, host: Host, key: str) -> str:
        try:
            with FileLock(self._known_hosts.with_suffix(".lock"), timeout=_HOST_LIMIT_S):
                pinned = self._pinned(host)
                if pinned is None:
                    with self._known_hosts.open("a") as file:
                        file.write(f"{_place(host)} {key}\n")
        except Timeout as error:
            raise ProviderUnavailable(f"ssh: {self._known_hosts} is locked by another worker") from error
        return pinned or key


async def _ask(connection: Connection, script: str, stdin: bytes = b"") -> bytes:
    """What a script prints after its mark; whatever the login shell prints before it does not count. No answer says
    nothing, so it is never read as one: a host that is out of memory or processes still holds its claim."""
    answer = await connection.run(_shell(script), stdin, timeout=_HOST_LIMIT_S)
    _, marked, said = answer.stdout.rpartition(_MARK)
    if answer.exit_status != 0 or not marked:
        why = answer.stderr.decode("utf-8", "replace").strip()[-200:]
        raise ConnectionLost(f"the host did not say who holds it (exit status {answer.exit_status}): {why}")
    return said


def _shell(script: str) -> str:
    return shlex.join(["sh", "-c", script])


def _tag(text: bytes) -> NodeTag | None:
    """Who holds the host, by its claim; None when nobody does."""
    if not text.strip():
        return None
    try:
        tag = from_json(NodeTag, json.loads(text))
    except ValueError:
        tag = None
    if tag is None:
        raise ConnectionLost("the claim on the host cannot be read; look into ~/.towline/claim there")
    return tag


def _held(host: Host, holder: NodeTag | None) -> str:
    whose = f"held by job {holder.job_id}, task {holder.task_index + 1}" if holder else "its claim cannot be read"
    return f"{host.address}:{host.port} {whose}"


def _node_id(host: Host, tag: NodeTag) -> str:
    place = _UNSAFE.sub("-", f"{host.pool}-{host.address}-{host.port}")
    return f"ssh-{place}-{tag.job_key[-10:]}-{tag.task_index}-{tag.generation}"


def _place(host: Host) -> str:
    return f"[{host.address}]:{host.port}"
