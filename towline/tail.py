"""Where to begin so that the last lines of a job come first."""

from __future__ import annotations

from dataclasses import dataclass, field

from towline.log_store import LogKey, LogStore

_BLOCK = 64 * 1024


@dataclass
class Start:
    """Where to begin in each log, and which logs to leave out because all of them lies before."""

    offsets: dict[LogKey, int] = field(default_factory=dict)
    skipped: set[LogKey] = field(default_factory=set)


async def tail_start(store: LogStore, logs: list[LogKey], lines: int) -> Start:
    """The start of the last `lines` lines of `logs`, which are in order. Of several nodes each counts for itself."""
    start = Start()
    left: dict[int, int] = {}
    for log in reversed(logs):
        wanted = left.get(log.rank, lines)
        if wanted <= 0 and log.rank in left:  # a later log of the node has all that is wanted
            start.skipped.add(log)
        start.offsets[log], found = await _last_lines(store, log, wanted)
        left[log.rank] = wanted - found
    return start


async def _last_lines(store: LogStore, log: LogKey, lines: int) -> tuple[int, int]:
    """The offset of the last `lines` lines, and how many there are; read backwards, a block at a time."""
    size = await store.size(log)
    if lines <= 0 or size == 0:
        return size, 0
    end, found = size - 1, 1  # a newline at the very end closes the last line and begins none
    while end > 0:
        begin = max(0, end - _BLOCK)
        block = await _whole(store, log, begin, end - begin)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if found == lines:
                return begin + at + 1, found
            found += 1
        end = begin
    return 0, found


async def _whole(store: LogStore, log: LogKey, offset: int, length: int) -> bytes:
    data = b""
    while len(data) < length and (more := await store.read(log, offset + len(data), length - len(data))):
        data += more
    return data
