"""The listener: accepts connections, ends slow and idle ones, and drains when it is stopped."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from toolgate.surfaces.http.connection import HttpServerConnection
from toolgate.surfaces.http.messages import HttpHandler

BACKLOG: Final = 4_096
MAX_CONNECTIONS: Final = 10_000
KEEP_ALIVE_S: Final = 75.0
REQUEST_S: Final = 20.0
"""How long a client may take to send a request, or to read what was written to it."""
SWEEP_S: Final = 5.0
SWEPT_AT_ONCE: Final = 500
"""Connections looked at before others have their turn: thousands may be overdue in the same moment."""


class HttpServer:
    """One listening socket with one handler behind it."""

    def __init__(
        self, handler: HttpHandler, *, request_s: float = REQUEST_S, keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        self.handler = handler
        self.is_closing = False
        self._request_s = request_s
        self._keep_alive_s = keep_alive_s
        self._connections: set[HttpServerConnection] = set()
        self._stuck: dict[HttpServerConnection, float] = {}
        self._all_disconnected = asyncio.Event()

    def __len__(self) -> int:
        return len(self._connections)

    def add_connection(self, connection: HttpServerConnection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= MAX_CONNECTIONS

    def remove_connection(self, connection: HttpServerConnection) -> None:
        self._connections.discard(connection)
        self._stuck.pop(connection, None)
        if not self._connections:
            self._all_disconnected.set()

    async def serve(
        self, listener: socket.socket, stopping: Callable[[], Awaitable[object]], *, drain_s: float
    ) -> None:
        """Serve until `stopping` returns; then let what is under way finish, for at most `drain_s`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HttpServerConnection(self, loop), sock=listener, backlog=BACKLOG
        )
        sweeping = loop.create_task(self._sweep())
        try:
            await stopping()
        finally:
            sweeping.cancel()
            server.close()
            await self._drain(drain_s)

    async def _drain(self, drain_s: float) -> None:
        self.is_closing = True
        for connection in tuple(self._connections):
            if connection.running is None:
                connection.close()
        try:
            async with asyncio.timeout(drain_s):
                await self._wait_disconnected()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._wait_disconnected()

    async def _wait_disconnected(self) -> None:
        while self._connections:
            self._all_disconnected.clear()
            await self._all_disconnected.wait()

    async def _sweep(self) -> None:
        """Now and then is often enough, and costs a request nothing."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(min(SWEEP_S, self._request_s / 2))
            now = clock()
            for number, connection in enumerate(tuple(self._connections), start=1):
                if connection in self._connections and self._is_overdue(connection, now):
                    connection.abort()
                if number % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _is_overdue(self, connection: HttpServerConnection, now: float) -> bool:
        if connection.unread_bytes:
            return now - self._stuck.setdefault(connection, now) > self._request_s
        self._stuck.pop(connection, None)
        if connection.running is not None:
            return False
        limit_s = self._request_s if connection.is_mid_request else self._keep_alive_s
        return now - connection.active_since > limit_s
