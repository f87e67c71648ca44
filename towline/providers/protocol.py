"""What a provider of nodes is: the protocol that `local`, `ssh` and the clouds fulfil alike.

Every method may raise ProviderUnavailable ("nothing is known, ask again"). Every method is idempotent: a crash between
any two calls costs nothing but time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from towline.contract import Node


@dataclass(frozen=True)
class Request:
    """What a task asks of one node, normalised from `resources`. `cpus` and `memory_gib` come with a flag that says
    whether more is welcome ("4+")."""

    infra: str | None = None  # "local", "ssh/POOL", "aws/us-east-1/us-east-1a"; None: whatever is usable
    cpus: float | None = None
    cpus_or_more: bool = True
    memory_gib: float | None = None
    memory_or_more: bool = True
    accelerators: tuple[tuple[str, float], ...] = ()
    instance_type: str | None = None
    use_spot: bool = False
    disk_gib: int | None = None
    image_id: str | None = None
    ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    max_hourly_cost: float | None = None
    lease_s: float | None = None  # how long a node lives without contact; None: the provider's default


@dataclass(frozen=True)
class Offer:
    """One way of satisfying a request."""

    provider: str
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    spot: bool = False
    hourly_cost: float | None = None
    cpus: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True)
class NodeTag:
    """Whose a node is. `owner` is the installation (see `towline.config`): a sweep only ever touches its own nodes."""

    owner: str
    job_key: str
    job_id: str
    task_index: int
    rank: int
    generation: int


@dataclass(frozen=True)
class TaggedNode:
    """A node as the provider lists it, with the process id where there is one (`local`)."""

    node: Node
    tag: NodeTag
    state: str
    pid: int | None = None


class NodeState:
    """What the provider says of a node."""

    STARTING = "starting"
    RUNNING = "running"
    GONE = "gone"  # ended, or never heard of


@dataclass(frozen=True)
class NodeReport:
    """The provider's judgement. `preempted` tells a taken-away node from one lost otherwise; `reason` is for a person
    ("spot interruption", "process 4711 is gone")."""

    state: str
    preempted: bool = False
    reason: str = ""


@dataclass(frozen=True)
class SshAccess:
    """How to reach a node as its user. `host_key` pins the host: a public key in OpenSSH's format."""

    host: str
    port: int
    user: str
    identity_file: str
    host_key: str


@dataclass(frozen=True)
class ProviderCheck:
    """A line of `towline check`. `remedy` is the one command or step that mends it."""

    provider: str
    usable: bool
    detail: str
    remedy: str = ""


class Provider(Protocol):
    """A source of nodes.

    `preemption_notice_s`: how long after the first signs (SIGTERM to the processes) a preempted spot node may still be
    described as running. For so long an exit by signal on a spot node is held against the provider before the user
    pays for it; 0 where nodes vanish without notice.
    """

    name: str
    preemption_notice_s: float

    async def check(self) -> list[ProviderCheck]:
        """Whether it can be used here, and what is missing."""

    async def offers(self, request: Request) -> list[Offer]:
        """All ways to satisfy the request, best first. Raises PrecheckFailed, naming the nearest, when there can
        never be one."""

    async def create(self, tag: NodeTag, request: Request, offer: Offer) -> Node:
        """A node that can be reached by SSH. The same tag again returns the same node. Raises NoCapacity when there
        is none now. A cancel takes effect as soon as the node is either in `list` or never will be, not
        only when it has booted."""

    async def describe(self, node: Node) -> NodeReport:
        """The provider's own view of the node, not the network's."""

    async def terminate(self, node: Node) -> None:
        """End the node. Returns when the provider confirms that it is gone; already gone is success."""

    async def list(self, owner: str | None, job_key: str | None = None) -> list[TaggedNode]:
        """The nodes tagged with `owner` (None: with any) that are not known to be released, also those still
        starting."""

    def access(self, node: Node) -> SshAccess:
        """How to reach the node."""
