"""A TCP line between two processes that a test can cut or hold. It carries what it gets byte for byte."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 64 * 1024
ABRUPTLY = struct.pack("ii", 1, 0)  # SO_LINGER that makes `close` send a reset


class Wire:
    """Forwards to `target`. Use `open_wire`."""

    def __init__(self, listener: socket.socket, target: str) -> None:
        self._listener = listener
        self._target = target
        self._flowing = threading.Event()
        self._flowing.set()
        self._guard = threading.Lock()
        self._ends: set[socket.socket] = set()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @property
    def is_carrying(self) -> bool:
        """Whether there is a connection."""
        with self._guard:
            return bool(self._ends)

    def cut(self) -> int:
        """Reset every connection there is now; how many. The next ones are carried again."""
        with self._guard:
            ends, self._ends = self._ends, set()
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPTLY)
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            end.close()
        return len(ends) // 2

    def hold(self) -> None:
        """From now on nothing arrives at either end, and neither is told: as if the network were gone."""
        self._flowing.clear()

    def release(self) -> None:
        """What was held arrives, and all that follows."""
        self._flowing.set()

    def accept(self) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                self._carry(self._listener.accept()[0])

    def _carry(self, near: socket.socket) -> None:
        try:
            far = _connect(self._target)
        except OSError:
            near.close()
            return
        with self._guard:
            self._ends |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                self._flowing.wait()
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _connect(target: str) -> socket.socket:
    if target.startswith("/"):
        far = socket.socket(socket.AF_UNIX)
        far.connect(target)
        return far
    host, _, port = target.rpartition(":")
    far = socket.create_connection((host, int(port)), timeout=60)
    far.settimeout(None)
    return far


@contextmanager
def open_wire(target: str) -> Iterator[Wire]:
    """A line to `target`, `HOST:PORT` or the path of a socket, of which one end can be called."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(listener, target)
        accepting = threading.Thread(target=wire.accept, daemon=True)
        accepting.start()
        try:
            yield wire
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            accepting.join(60)
            wire.release()
            wire.cut()
