"""`ssh_node_pools.yaml`: the machines that you already have, by pool, in SkyPilot's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towline.errors import UsageError
from towline.loading import load_mapping

_POOL_KEYS = {"user", "identity_file", "hosts"}
_HOST_KEYS = {"ip", "port", "user", "identity_file"}


@dataclass(frozen=True)
class Host:
    """One machine of a pool, and how to log in there."""

    pool: str
    address: str
    port: int
    user: str
    identity_file: str


def load_pools(path: Path) -> dict[str, list[Host]]:
    """The hosts of every pool; no file, no pools. Raises UsageError with file and key."""
    if not path.exists():
        return {}
    try:
        data = load_mapping(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return {name: _hosts(path, name, pool) for name, pool in data.items()}


def _hosts(path: Path, name: str, pool: Any) -> list[Host]:
    where = f"{path}: {name}"
    if not isinstance(pool, dict):
        raise UsageError(f"{where}: must be a mapping with user, identity_file and hosts")
    _refuse_unknown(where, pool, _POOL_KEYS)
    hosts = pool.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        raise UsageError(f"{where}.hosts: must be a list of addresses")
    found = [_host(f"{where}.hosts[{index}]", name, pool, each) for index, each in enumerate(hosts)]
    twice = {f"{each.address}:{each.port}" for each in found if sum(each == other for other in found) > 1}
    if twice:
        raise UsageError(f"{where}.hosts: {', '.join(sorted(twice))} is named twice")
    return found


def _host(where: str, pool_name: str, pool: dict[str, Any], host: Any) -> Host:
    entry = {"ip": host} if isinstance(host, str) else host
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: must be an address, or a mapping with ip, port, user and identity_file")
    _refuse_unknown(where, entry, _HOST_KEYS)
    merged = {**{key: pool.get(key) for key in ("user", "identity_file")}, **entry}
    for key in ("ip", "user", "identity_file"):
        if not isinstance(merged.get(key), str) or not merged[key]:
            raise UsageError(f"{where}: {key} is missing; give it here or for the whole pool")
    port = merged.get("port", 22)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise UsageError(f"{where}.port: must be a port from 1 to 65535")
    identity = str(Path(merged["identity_file"]).expanduser())
    return Host(pool_name, merged["ip"], port, merged["user"], identity)


def _refuse_unknown(where: str, mapping: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(map(str, mapping)) - known)
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]}; the keys here are {', '.join(sorted(known))}")
