"""A secret that is looked for everywhere."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client

CANARY = "s3cr3t-canary/+ of 29 bytes.."


def forms(secret: str = CANARY) -> list[bytes]:
    """The secret as it is, in hexadecimal, and within base64, at any of the three places where it may begin there."""
    data = secret.encode()
    found = [data, data.hex().encode()]
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + data)
        found.append(whole[-(-shift * 8 // 6) + (1 if shift else 0) : -4])
    return found


def has_canary(data: bytes | str) -> bool:
    """Whether the canary is in it in any form."""
    text = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return any(form in text for form in forms())


def files_with_canary(*roots: Path, besides: str = "") -> list[Path]:
    """Every file below that holds the canary; those named `besides` are not looked at."""
    found = []
    for root in roots:
        for path in root.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.name != besides and has_canary(path.read_bytes()):
                    found.append(path)
    return found


def open_to_others(root: Path) -> list[Path]:
    """Every path below that others than its owner may read."""
    found = []
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.stat().st_mode & 0o077:
                found.append(path)
    return found


async def told_by_the_server(client: Client, job_id: str) -> bytes:
    """All that the server tells of a job: its history, and what it describes: memo, search attributes, heartbeats and
    last failures of pending activities."""
    handle = client.get_workflow_handle(job_id)
    history = [event.SerializeToString() async for event in handle.fetch_history_events()]
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace)
    request.execution.workflow_id = job_id
    described = await client.workflow_service.describe_workflow_execution(request)
    return b"\n".join([*history, described.SerializeToString()])


class CommandLines:
    """Looks at the command lines of all processes, over and over. `seen` are those with the canary."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.looks = 0
        self._end = threading.Event()

    def _look(self) -> None:
        while not self._end.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = path.read_bytes()
                    if has_canary(line):
                        self.seen.append(line)
            self.looks += 1

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs."""
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()


@contextlib.contextmanager
def command_lines() -> Iterator[CommandLines]:
    """The command lines of all processes while the block runs."""
    lines = CommandLines()
    with lines.watched():
        yield lines
