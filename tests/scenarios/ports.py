"""Addresses on loopback that one can come back to.

A port that the kernel chose goes to anyone as soon as no one listens there. Those here it never chooses.
"""

import os
import socket
from itertools import cycle
from typing import Final

_FIRST: Final = 11_000
_EACH: Final = 200
"""Each process that runs tests has so many of its own."""
_ports: Final = cycle(range(_EACH))


def own_port() -> int:
    """A port on which no one listens."""
    first = _FIRST + os.getpid() % 100 * _EACH
    for _ in range(_EACH):
        port = first + next(_ports)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are taken")


def own_address() -> str:
    """HOST:PORT of one."""
    return f"127.0.0.1:{own_port()}"
