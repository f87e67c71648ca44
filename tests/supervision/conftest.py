"""A node behind OpenSSH's server."""

from __future__ import annotations

from tests.support.openssh import openssh

__all__ = ["openssh"]
