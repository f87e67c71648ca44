"""A cloud whose weather a test makes: creates that take a minute, lists that lag, deletes that fail or lie, no
capacity, instances that vanish with and without warning.

Its records are a database file, so that every worker process and the test see the same cloud; its machines are local
nodes, or, where there are to be hundreds, all one OpenSSH server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from towline.contract import Node, from_json
from towline.errors import NoCapacity, ProviderUnavailable
from towline.providers.local import LocalProvider
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
from towline.ssh.client import SshClient
from towline.supervision import NodeTask

_LOOK_S = 0.1
_CONFIRM_S = 2.0


@dataclass
class Weather:
    """What the cloud is like now. Counters count down; `proxy_port` is where instances seem to listen."""

    create_s: float = 0.0
    list_lag_s: float = 0.0
    creates_fail: int = 0
    deletes_fail: int = 0
    deletes_lie: int = 0
    no_capacity: bool = False
    notice_s: float = 0.0
    proxy_port: int | None = None
    lives_s: float | None = None  # every instance vanishes so long after it was asked for


@dataclass(frozen=True)
class Instance:
    """A record of the cloud. Times are `time.time()`."""

    node_id: str
    tag: NodeTag
    asked_at: float
    gone_at: float | None
    preempted: bool


class Cloud:
    """The records and the weather, as the cloud's own staff sees them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "cloud.db"
        with self._database() as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS instances"
                " (node_id TEXT PRIMARY KEY, tag TEXT, asked_at REAL, gone_at REAL, preempted INTEGER)"
            )
            database.execute("CREATE INDEX IF NOT EXISTS by_tag ON instances (tag)")
            database.execute("CREATE TABLE IF NOT EXISTS weather (one INTEGER PRIMARY KEY, is_like TEXT)")
            database.execute("CREATE TABLE IF NOT EXISTS creates (node_id TEXT, at REAL)")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._file, timeout=30, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    @property
    def weather(self) -> Weather:
        """What it is like now."""
        with self._database() as database:
            row = database.execute("SELECT is_like FROM weather").fetchone()
        return Weather(**json.loads(row[0])) if row else Weather()

    def turns(self, **changes: Any) -> None:
        """The weather changes."""
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            self._turn(database, **changes)
            database.execute("COMMIT")

    def strikes(self, counter: str) -> bool:
        """Whether a fault that is counted down happens now."""
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            row = database.execute("SELECT is_like FROM weather").fetchone()
            left = json.loads(row[0])[counter] if row else 0
            if left > 0:
                self._turn(database, **{counter: left - 1})
            database.execute("COMMIT")
        return bool(left > 0)

    def _turn(self, database: sqlite3.Connection, **changes: Any) -> None:
        row = database.execute("SELECT is_like FROM weather").fetchone()
        weather = replace(Weather(**json.loads(row[0])) if row else Weather(), **changes)
        database.execute("INSERT OR REPLACE INTO weather VALUES (1, ?)", [json.dumps(asdict(weather))])

    def ask(self, tag: NodeTag) -> Instance:
        """The instance of a tag: the one that lives, or a new one."""
        node_id = _node_id(_of_machine(tag, self.gone_of(tag)))
        with self._database() as database:
            database.execute(
                "INSERT OR IGNORE INTO instances VALUES (?, ?, ?, NULL, 0)",
                [node_id, _text(tag), time.time()],
            )
            database.execute("INSERT INTO creates VALUES (?, ?)", [node_id, time.time()])
        found = self.instance(node_id)
        assert found is not None
        return found

    def end(self, node_id: str, *, preempted: bool = False) -> None:
        """It is gone from now on; who was gone before stays as he was."""
        with self._database() as database:
            database.execute(
                "UPDATE instances SET gone_at = ?, preempted = ? WHERE node_id = ? AND gone_at IS NULL",
                [time.time(), int(preempted), node_id],
            )

    def instance(self, node_id: str) -> Instance | None:
        """The record of that id."""
        return next(iter(self.instances("node_id = ?", node_id)), None)

    def gone_of(self, tag: NodeTag) -> int:
        """How many that had this tag are gone."""
        return sum(each.gone_at is not None for each in self.instances("tag = ?", _text(tag)))

    def instances(self, where: str = "?", *values: object) -> list[Instance]:
        """All that were ever asked for, in order; or those of a condition."""
        query = f"SELECT * FROM instances WHERE {where} ORDER BY asked_at"
        with self._database() as database:
            rows = database.execute(query, values or (True,)).fetchall()
        lives_s = self.weather.lives_s
        return [_instance(row, lives_s) for row in rows]

    def living(self) -> list[Instance]:
        """Those that are not gone: what is paid for."""
        return [each for each in self.instances() if each.gone_at is None]

    def asked(self) -> int:
        """How many create requests came in."""
        with self._database() as database:
            return int(database.execute("SELECT count(*) FROM creates").fetchone()[0])

    def double_nodes(self) -> list[tuple[Instance, Instance]]:
        """The node ledger's first question: two that lived at one time for one task and rank of a job."""
        found = []
        for number, one in enumerate(each := self.instances()):
            for other in each[number + 1 :]:
                same = (one.tag.job_key, one.tag.task_index, one.tag.rank) == (
                    other.tag.job_key,
                    other.tag.task_index,
                    other.tag.rank,
                )
                if same and (one.gone_at is None or one.gone_at > other.asked_at):
                    found.append((one, other))
        return found


def _instance(row: Any, lives_s: float | None) -> Instance:
    node_id, tag, asked_at, gone_at, preempted = row
    if gone_at is None and lives_s is not None and time.time() > asked_at + lives_s:
        gone_at, preempted = asked_at + lives_s, 1
    read = from_json(NodeTag, json.loads(tag))
    assert read is not None
    return Instance(node_id, read, asked_at, gone_at, bool(preempted))


def _text(tag: NodeTag) -> str:
    return json.dumps(asdict(tag))


def _of_machine(tag: NodeTag, gone: int) -> NodeTag:
    """What tells a machine from those that had the same tag before."""
    return replace(tag, generation=1000 * tag.generation + gone)


def _node_id(tag: NodeTag) -> str:
    return "local-" + hashlib.sha256(repr(tag).encode()).hexdigest()[:12]


class Machines(Protocol):
    """What instances are made of."""

    async def boot(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """A machine that serves SSH; the same one for the same tag."""

    async def power_off(self, node_id: str, tag: NodeTag) -> None:
        """It, and all that runs there, is gone."""

    def take_away(self, node_id: str) -> bool:
        """The same at once, without being asked."""

    def access(self, node: Node) -> SshAccess:
        """How to log in."""


class LocalMachines:
    """Each a local node."""

    def __init__(self, home: Path) -> None:
        self._local = LocalProvider(home)

    async def boot(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """Start its process."""
        return await self._local.create(tag, request, offer)

    async def power_off(self, node_id: str, tag: NodeTag) -> None:
        """Kill its process."""
        await self._local.terminate(Node(node_id, tag.rank, "local", "", 0, ""))

    def take_away(self, node_id: str) -> bool:
        """Kill its process, for whatever reason a cloud has; False when it does not live."""
        return self._local.preempt(node_id)

    def access(self, node: Node) -> SshAccess:
        """With the client key of the home."""
        return self._local.access(node)


class OneHost:
    """All of them one SSH server: machines by the hundred that cost nothing."""

    def __init__(self, access: SshAccess, ssh: SshClient) -> None:
        self._access = access
        self._ssh = ssh

    async def boot(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """Nothing to do."""
        host = self._access
        return Node(_node_id(tag), tag.rank, "local", host.host, host.port, host.user, host.host_key)

    async def power_off(self, node_id: str, tag: NodeTag) -> None:
        """End what the task left there."""
        async with self._ssh.connect(self._access) as connection:
            task = NodeTask(connection, tag.job_key, tag.task_index)
            await task.stop(0)
            await task.remove()

    def take_away(self, node_id: str) -> bool:
        """One host does not vanish in part."""
        raise NotImplementedError

    def access(self, node: Node) -> SshAccess:
        """The one there is, by way of the proxy where there is one."""
        return replace(self._access, port=node.port)


class ScriptedCloud:
    """The cloud as a provider of a worker. It goes by the name of `local`, so that jobs need not know of it."""

    name = "local"

    def __init__(self, cloud: Cloud, machines: Machines) -> None:
        self.cloud = cloud
        self._machines = machines

    @property
    def preemption_notice_s(self) -> float:
        """How long before the end a spot instance is told."""
        return self.cloud.weather.notice_s

    async def check(self) -> list[ProviderCheck]:
        """Always usable."""
        return [ProviderCheck(self.name, True, "a scripted cloud")]

    async def offers(self, request: Request) -> list[Offer]:
        """One."""
        return [Offer(self.name, region="fair-1", spot=request.use_spot, hourly_cost=1.0)]

    async def create(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """Ask, wait until it runs, and boot it. A cancel returns once the instance is in the list."""
        if self.cloud.strikes("creates_fail"):
            raise ProviderUnavailable("the cloud answers 503")
        weather = self.cloud.weather
        known = self.cloud.instances("tag = ?", _text(tag))
        if weather.no_capacity and all(each.gone_at is not None for each in known):
            raise NoCapacity("fair-1 has no capacity")
        instance = self.cloud.ask(tag)
        try:
            await asyncio.sleep(instance.asked_at + weather.create_s - time.time())
            if (gone := self._gone(instance.node_id)) is not None:
                raise ProviderUnavailable(f"{gone.node_id} was taken away while it was created")
            node = await self._machines.boot(_of_machine(tag, self.cloud.gone_of(tag)), request, offer)
        except asyncio.CancelledError:
            await asyncio.sleep(instance.asked_at + weather.list_lag_s - time.time())
            raise
        if weather.lives_s is not None:
            asyncio.get_running_loop().call_later(weather.lives_s, self._machines.take_away, instance.node_id)
        if self._gone(instance.node_id) is not None:
            await self._machines.power_off(instance.node_id, tag)
            raise ProviderUnavailable(f"{instance.node_id} was taken away while it was created")
        return self._shown(node, instance, offer.spot)

    async def describe(self, node: Node) -> NodeReport:
        """By the record, whatever the machine does."""
        gone = self._gone(node.node_id)
        if gone is None:
            return NodeReport(NodeState.RUNNING)
        reason = "spot interruption" if gone.preempted else "the instance is gone"
        return NodeReport(NodeState.GONE, preempted=gone.preempted, reason=reason)

    async def terminate(self, node: Node) -> None:
        """Delete, and believe it only when it is seen."""
        instance = self.cloud.instance(node.node_id)
        if instance is None:
            return
        if self.cloud.strikes("deletes_fail"):
            raise ProviderUnavailable("the cloud answers 500")
        if not self.cloud.strikes("deletes_lie"):
            await self._machines.power_off(node.node_id, instance.tag)
            self.cloud.end(node.node_id)
        limit = time.monotonic() + _CONFIRM_S
        while self._gone(node.node_id) is None:
            if time.monotonic() > limit:
                raise ProviderUnavailable(f"{node.node_id} is still there after its delete was accepted")
            await asyncio.sleep(_LOOK_S)

    async def list(self, owner: str | None, job_key: str | None = None) -> list[TaggedNode]:
        """What was asked for some time ago and is not gone."""
        seen = time.time() - self.cloud.weather.list_lag_s
        return [
            TaggedNode(self._bare(each), each.tag, NodeState.RUNNING)
            for each in self.cloud.living()
            if each.asked_at <= seen and owner in (None, each.tag.owner) and job_key in (None, each.tag.job_key)
        ]

    def access(self, node: Node) -> SshAccess:
        """As its machine says."""
        return self._machines.access(node)

    def _gone(self, node_id: str) -> Instance | None:
        instance = self.cloud.instance(node_id)
        return instance if instance is not None and instance.gone_at is not None else None

    def _bare(self, instance: Instance) -> Node:
        return Node(instance.node_id, instance.tag.rank, self.name, "127.0.0.1", 0, "")

    def _shown(self, node: Node, instance: Instance, spot: bool) -> Node:
        port = self.cloud.weather.proxy_port or node.port
        return replace(node, node_id=instance.node_id, port=port, spot=spot, region="fair-1", hourly_cost=1.0)
