"""Every test of the node script runs under each shell that it must run under."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shells import SHELLS, ShellNode, shell_node


@pytest.fixture(params=SHELLS)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ShellNode]:
    """A node whose `sh` is the shell under test."""
    with shell_node(request.param, tmp_path) as node:
        yield node
