"""A TCP proxy on loopback that spoils what it carries as a test says: late, slow, sliced, corrupt, cut off.

What each direction suffers is a `Fault`, read again for every piece, so a test can change it at any time.
Connections and bytes are counted, so a test can tell what really went over the line.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

CHUNK_BYTES: Final = 65536
_ABRUPTLY: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes a close send a reset
_FILLERS: Final = 2
"""Connections that fill the shortest queue of a listener: Linux takes one more than it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the bytes of one direction. As made without arguments: nothing."""

    latency_s: float = 0.0
    """Before every piece."""
    bytes_per_s: float = 0.0
    """How fast pieces follow each other; 0 for as fast as can be."""
    slice_bytes: int = CHUNK_BYTES
    """The longest piece."""
    corrupt_at: int | None = None
    """The byte of each connection whose bits are turned over, counted from 0."""
    reset_after: int | None = None
    """After so many bytes of a connection both its ends get a reset."""


@dataclass
class Direction:
    """One way through the proxy: what it does to the bytes, and how many it has carried."""

    fault: Fault = field(default_factory=Fault)
    carried_bytes: int = 0


class FaultProxy:
    """Forwards to a port on loopback. Use `open_fault_proxy`."""

    def __init__(self, listener: socket.socket, target_port: int) -> None:
        self._listener = listener
        self._target_port = target_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._fillers: list[socket.socket] = []
        self._carrying: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self.requests = Direction()
        """From a caller that connects to the target."""
        self.responses = Direction()
        """And back."""
        self.connections = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def open_connections(self) -> int:
        """Those that neither end has closed."""
        return len(self._carrying)

    # What a test does to the line

    def hold(self) -> None:
        """From now on nothing arrives at either end, and neither is told: as if the network were gone."""
        self._flowing.clear()

    def release(self) -> None:
        """What was held arrives, and all that follows."""
        self._flowing.set()

    def reset_all(self) -> int:
        """Reset every connection there is; how many."""
        ended = tuple(self._carrying.items())
        for task, writers in ended:
            _reset(writers)
            task.cancel()
        return len(ended)

    def turn_deaf(self) -> None:
        """Answer no more attempts to connect, not even with a refusal. Connections there are go on."""
        self._accept()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.listen(0)
        for _ in range(_FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self._listener.getsockname())
            self._fillers.append(filler)

    def turn_hearing(self) -> None:
        """Accept again."""
        self._close_fillers()
        self._listener.listen(128)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def aclose(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._close_fillers()
        self.reset_all()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    # How it works

    def _close_fillers(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _accept(self) -> None:
        """Take all who wait. At once, not in a task: one that is cancelled may lose a connection."""
        with contextlib.suppress(BlockingIOError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                writers: list[asyncio.StreamWriter] = []
                task = asyncio.ensure_future(self._carry(near, writers))
                self._carrying[task] = writers
                task.add_done_callback(self._carrying.pop)

    async def _carry(self, near: socket.socket, writers: list[asyncio.StreamWriter]) -> None:
        caller, to_caller = await asyncio.open_connection(sock=near)
        writers.append(to_caller)
        try:
            target, to_target = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(to_target)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(caller, to_target, self.requests, lambda: _reset(writers)))
                pumps.create_task(self._pump(target, to_caller, self.responses, lambda: _reset(writers)))
        except* OSError:
            pass  # one end is gone, and soon the other
        finally:
            for writer in writers:
                writer.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: Direction,
        cut: Callable[[], None],
    ) -> None:
        position = 0
        while data := await source.read(CHUNK_BYTES):
            while data:
                await self._flowing.wait()
                fault = way.fault
                piece, data = data[: fault.slice_bytes], data[fault.slice_bytes :]
                await asyncio.sleep(fault.latency_s)
                if fault.reset_after is not None:
                    piece = piece[: max(0, fault.reset_after - position)]
                sink.write(_spoil(piece, fault.corrupt_at, position))
                await sink.drain()
                position += len(piece)
                way.carried_bytes += len(piece)
                if fault.reset_after is not None and position >= fault.reset_after:
                    cut()
                    return
                if fault.bytes_per_s:
                    await asyncio.sleep(len(piece) / fault.bytes_per_s)
        if not sink.is_closing():
            sink.write_eof()


def _spoil(piece: bytes, corrupt_at: int | None, position: int) -> bytes:
    if corrupt_at is None or not position <= corrupt_at < position + len(piece):
        return piece
    place = corrupt_at - position
    return b"%b%c%b" % (piece[:place], piece[place] ^ 0xFF, piece[place + 1 :])


def _reset(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        if not writer.transport.is_closing():
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABRUPTLY)
            writer.transport.abort()


@asynccontextmanager
async def open_fault_proxy(target_port: int) -> AsyncIterator[FaultProxy]:
    """A proxy to `target_port` that does no harm yet."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        proxy = FaultProxy(listener, target_port)
        proxy.turn_hearing()
        try:
            yield proxy
        finally:
            await proxy.aclose()
