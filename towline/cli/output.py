"""A job's bytes on a stream: as they are, or, where several nodes write, in whole lines with the node in front."""

from __future__ import annotations

import os
from typing import IO

LONGEST_HELD_LINE = 1024 * 1024


class Output:
    """`writing` is true while a write may block, `within_line` after a byte that is no newline."""

    def __init__(self, stream: IO[str]) -> None:
        stream.flush()
        self._descriptor = stream.fileno()
        self._held: dict[int, bytes] = {}
        self.writing = False
        self.within_line = False

    def write(self, rank: int, data: bytes, *, several: bool) -> None:
        """Bytes of one node. With `several`, an unfinished line is held until the rest of it comes."""
        if not several and rank not in self._held:
            self._put(data)
            return
        lines = (self._held.pop(rank, b"") + data).split(b"\n")
        last = lines.pop()
        if len(last) > LONGEST_HELD_LINE:  # it cannot be held for ever: it is shown in pieces
            lines.append(last)
            last = b""
        if last:
            self._held[rank] = last
        prefix = b"(node %d) " % rank
        self._put(b"".join(prefix + line + b"\n" for line in lines))

    def end(self, rank: int) -> None:
        """No more of this log: its unfinished line is finished, so that the next node's begins a new one."""
        rest = self._held.pop(rank, b"")
        if rest:
            self._put(b"(node %d) " % rank + rest + b"\n")

    def break_line(self) -> None:
        """On a terminal, where other words are about to follow: begin a new line. Elsewhere the bytes stay as they
        are."""
        if self.within_line and os.isatty(self._descriptor) and os.isatty(2):
            os.write(2, b"\n")
            self.within_line = False

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        self.within_line = not data.endswith(b"\n") if data else self.within_line
        while left:
            self.writing = True
            try:
                left = left[os.write(self._descriptor, left) :]
            finally:
                self.writing = False
