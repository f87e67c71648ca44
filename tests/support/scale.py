"""How much of what takes long: some on every change, all with `make full`."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

Size = TypeVar("Size")
_FULL = os.environ.get("TOWLINE_TESTS") == "full"

full_only = pytest.mark.skipif(not _FULL, reason="takes minutes: `make full` runs it")


def scaled(some: Size, full: Size) -> Size:
    """`some` on every change, `full` in a full run."""
    return full if _FULL else some
