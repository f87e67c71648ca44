"""Whole systems, some of them on a scripted cloud, and a run ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.cloud import Cloud
from tests.support.openssh import OpenSsh, openssh
from tests.support.oracles import Diary
from tests.support.proxy import Proxy
from tests.support.system import System
from tests.support.system_fixtures import idle, server, system

__all__ = ["idle", "openssh", "server", "system"]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path / "cloud")


@pytest.fixture
def clouded(idle: System, cloud: Cloud, tmp_path: Path) -> System:
    """A system without a worker, whose workers get their nodes from the scripted cloud."""
    idle.worker_command = ["-m", "tests.support.cloud_worker"]
    idle.extra_environment = {"FAULT_CLOUD": str(tmp_path / "cloud"), "FAULT_ONCE": str(tmp_path / "once")}
    return idle


@pytest.fixture
def crowded(clouded: System, openssh: OpenSsh) -> System:
    """A system for hundreds of jobs: all instances of its cloud are one host, and heartbeats are as in production."""
    clouded.extra_environment |= {
        "FAULT_HOST": json.dumps(asdict(openssh.access)),
        "TOWLINE_HEARTBEAT_TIMEOUT": "15",
        "TOWLINE_HEARTBEAT_INTERVAL": "5",
    }
    return clouded


@pytest_asyncio.fixture
async def proxy(openssh: OpenSsh) -> AsyncIterator[Proxy]:
    """A stretch of network before the OpenSSH server of the test."""
    between = Proxy(lambda: openssh.port)
    await between.start()
    yield between
    await between.stop()
