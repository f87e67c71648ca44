"""The most memory a process takes while something goes on."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

_EACH_S = 0.1


class PeakMemory:
    """Looks at a process ten times a second; `bytes` is the largest resident size seen."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.bytes = process.memory_info().rss

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_EACH_S):
            self.bytes = max(self.bytes, self._process.memory_info().rss)
