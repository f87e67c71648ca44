"""The process that is a local node: `python -m towline.providers.local_node DIRECTORY`.

It waits for a word on its standard input before it does anything, so that a creator which dies before it has
written down
whom it started leaves nothing behind. Then it serves SSH until it is killed, or until its lease has passed
without contact.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")


def main() -> None:
    """Fork the server, and be the init of all that runs on the node: reap orphans, and end when the server ends."""
    directory = Path(sys.argv[1])
    if not sys.stdin.buffer.read(1):
        return
    _redirect(directory / "log")
    os.umask(0o022)  # a task finds a usual machine; the node's directory is closed to others as a whole
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = os.fork()
    if server == 0:
        asyncio.run(_serve(directory))
        os._exit(0)
    while True:
        ended, status = os.wait()
        if ended == server:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _redirect(log: Path) -> None:
    """No descriptor of the creator's stays open but standard output, which says when the node is ready."""
    null = os.open(os.devnull, os.O_RDONLY)
    kept = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(kept, 2)


async def _serve(directory: Path) -> None:
    from towline.ssh.server import NodeServer, make_key  # after the fork: the init stays small

    wanted = json.loads((directory / "wanted.json").read_text())
    home = directory / "home"
    (directory / "tmp").mkdir(mode=0o700, exist_ok=True)
    host_key = make_key(directory / "host_key")
    server = NodeServer(directory / "host_key", wanted["authorized_key"], home, _environment(directory, home))
    port = await server.listen()
    part = directory / "ready.json.part"
    part.write_text(json.dumps({"port": port, "host_key": host_key}))
    part.rename(directory / "ready.json")
    with contextlib.suppress(BrokenPipeError):  # the creator has died: who comes after it finds the node by its tag
        os.write(1, b"ready\n")
    os.dup2(2, 1)
    lease_s = float(wanted["lease_s"])
    while (left := lease_s - server.idle_s) > 0:
        await asyncio.sleep(left)
    print("the lease has passed without contact", file=sys.stderr)


def _environment(directory: Path, home: Path) -> dict[str, str]:
    """What commands find: nothing of the worker's own, so no secret of its can reach them."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or "towline"
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **inherited,
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "TMPDIR": str(directory / "tmp"),
        "TOWLINE_NODE": str(directory),
    }


if __name__ == "__main__":
    main()
