"""A stretch of network between worker and nodes: it can freeze, delay and cut what passes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator

_NOTHING: Iterator[None] = iter(())
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a free port of the loopback and passes on to whatever port `target` names at the time."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._delay_s = 0.0
        self._transports: set[asyncio.Transport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._shaking = 0
        self.most_shaking = 0

    async def start(self) -> int:
        """Returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        return self.port

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Cut everything, and listen no more."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        self.cut()

    def freeze(self) -> None:
        """From now on every packet is dropped, without a word to anyone."""
        self._flows.clear()

    def thaw(self) -> None:
        """Packets pass again; what was dropped is sent again, as TCP does."""
        self._flows.set()

    def delay(self, seconds: float) -> None:
        """So long takes each packet, each way."""
        self._delay_s = seconds

    def cut(self) -> int:
        """Reset every connection there is; returns how many."""
        transports = list(self._transports)
        for transport in transports:
            with contextlib.suppress(OSError):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        return len(transports) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        transports = {writer.transport}
        self._transports |= transports
        try:
            await self._flows.wait()
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target())
                transports.add(far_writer.transport)
                self._transports |= transports
                shaking = self._while_shaking_hands()
                await asyncio.gather(self._pass(reader, far_writer, shaking), self._pass(far_reader, writer))
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)
            self._transports -= transports
            for each in transports:
                each.abort()

    def _while_shaking_hands(self) -> Iterator[None]:
        """Counts a connection until its client has said for the eighth time something: it is logged in then."""
        self._shaking += 1
        self.most_shaking = max(self.most_shaking, self._shaking)
        try:
            for _ in range(7):
                yield
        finally:
            self._shaking -= 1

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, shaking: Iterator[None] | None = None
    ) -> None:
        """Each piece arrives when its time has come; pieces overlap, so that a delay is not a lack of bandwidth."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(due - loop.time())
                await self._flows.wait()
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        async def collect() -> None:
            while True:
                data = await reader.read(65536)
                next(shaking or _NOTHING, None)
                await pieces.put((loop.time() + self._delay_s, data))
                if not data:
                    return

        await asyncio.gather(deliver(), collect())
