"""Every test here runs on a whole system."""

from tests.support.system_fixtures import idle, server, system

__all__ = ["idle", "server", "system"]
