"""Jobs on machines that one already has: OpenSSH's own server."""

from __future__ import annotations

from pathlib import Path

from towline.status import Status

from tests.support.openssh import OpenSsh
from tests.support.system import System, until
