"""HTTP/1.1 to one server: a pool of kept-alive connections.

Proxies do not exist here, whatever the environment says, and every connection goes to an address that
`Egress` has vetted.
"""

import asyncio
import contextlib
import math
import os
import socket
import ssl
from collections import deque
from typing import Final

from toolgate.upstream.http.client_connection import (
    ConnectionStale,
    ExchangeFailed,
    ExchangeTimedOut,
    HttpClientConnection,
    HttpLimits,
    HttpResponse,
    StreamSink,
)
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget

_CLOSED: Final = "the connection was closed by the gateway"
_SLOW_CONNECT_S: Final = 1.0
_REST: Final = 30
"""How many times as long as it kept the loop a noisy stream then gives way: 3 % are for noise."""


_AT_ONCE_S: Final = 0.1
"""A server that closes a connection sooner keeps none. Common keep-alive times begin at 2 s."""
_MAX_DISTRUST_S: Final = 3_600.0


class ConnectFailed(Exception):
    """No connection, so nothing was sent."""


class HttpPool:
    """Connections to one server: the most recently used is taken first, so the rest can go idle."""

    def __init__(
        self,
        target: HttpTarget,
        egress: Egress,
        *,
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """`tls` is needed for an `https` target; it decides whom to trust."""
        self._target = target
        self._egress = egress
        self._tls = tls if target.is_tls else None
        self._limits = limits or HttpLimits()
        self._loop = asyncio.get_running_loop()
        self._connections: set[HttpClientConnection] = set()
        self._idle: deque[HttpClientConnection] = deque()
        # Bounded by the callers: a server's budget admits only so many calls at once.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._opening = 0
        self._failed_connects = 0
        """In a row."""
        self._failure = ""
        self._retry_s = 0.0
        self._reuse_s = math.inf
        """How soon a kept connection must be used: half of what this server last kept one."""
        self._distrusted_until_s = -math.inf
        self._distrust_s = self._limits.distrust_s
        self._turn_s = 0.0
        """Until when the streams of this server give way."""
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def size(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def is_busy(self) -> bool:
        """Whether any request is under way whose answer somebody waits for."""
        return any(connection.is_serving_call for connection in self._connections)

    async def send_repeatable(
        self, request: bytes, *, deadline: float | None, sink: StreamSink | None = None
    ) -> HttpResponse:
        """As `send`, for what does nothing: sent again if it meets a connection the server has closed."""
        with contextlib.suppress(ConnectionStale):
            return await self.send(request, deadline=deadline, sink=sink)
        return await self.send(request, deadline=deadline, sink=sink, is_afresh=True)

    async def send(
        self,
        request: bytes,
        *,
        deadline: float | None,
        sink: StreamSink | None = None,
        is_afresh: bool = False,
    ) -> HttpResponse:
        """Write `request` on a connection and wait for its answer, until `deadline` of the loop's clock.

        Raises ConnectFailed, ExchangeFailed and ExchangeTimedOut. Where the server answers with an event
        stream, `sink` takes it, and this returns when the sink has enough or the stream ends.
        `is_afresh`: not on a connection that was kept, if there may be another.
        """
        connection = (None if is_afresh else self._take_idle()) or await self._obtain(deadline)
        if self._is_closed:
            connection.drop()
            raise ConnectFailed(_CLOSED)
        waiter = connection.exchange(request, sink, deadline)
        try:
            return await waiter
        finally:
            connection.abandon(waiter)

    async def start(
        self, request: bytes, *, deadline: float, sink: StreamSink, is_afresh: bool = False
    ) -> tuple[HttpClientConnection, asyncio.Future[HttpResponse]]:
        """Write `request`, and do not wait for its answer: it is the future's, a stream is the sink's.

        `is_afresh`: not on a connection that was kept, if there may be another. Raises ConnectFailed and
        ExchangeTimedOut. Whoever starts it tells the connection to `abandon` it in the end.
        """
        connection = (None if is_afresh else self._take_idle()) or await self._obtain(deadline)
        if self._is_closed:
            connection.drop()
            raise ConnectFailed(_CLOSED)
        return connection, connection.exchange(request, sink, deadline)

    def close(self) -> None:
        """Drop every connection; requests under way fail. Idempotent."""
        self._is_closed = True
        for connection in tuple(self._connections):
            connection.fail(ExchangeFailed(_CLOSED))
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()
        while self._waiters:
            self._wake_next()

    def next_turn_s(self, took_s: float) -> float:
        # One after another: however many streams of a server are noisy, together they have one small share.
        self._turn_s = max(self._turn_s, self._loop.time()) + took_s * _REST
        return self._turn_s

    def give_back(self, connection: HttpClientConnection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._waiters:
            self._wake_next()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.idle_s / 2, self._close_stale)

    def forget(self, connection: HttpClientConnection) -> None:
        self._connections.discard(connection)
        self._wake_next()

    def on_closed_idle(self, idle_s: float) -> None:
        now = self._loop.time()
        if now >= self._distrusted_until_s:
            self._reuse_s = math.inf
        self._reuse_s = min(self._reuse_s, idle_s / 2 if idle_s >= _AT_ONCE_S else 0.0)
        self._distrusted_until_s = now + self._distrust_s
        self._distrust_s = min(self._distrust_s * 2, _MAX_DISTRUST_S)

    def _take_idle(self) -> HttpClientConnection | None:
        now = self._loop.time()
        reuse_s = self._reuse_s if now < self._distrusted_until_s else math.inf
        while self._idle:
            connection = self._idle.pop()
            connection.idled_s = now - connection.idle_since
            if connection.idled_s < reuse_s and connection.is_usable(now):
                return connection
            connection.drop()
        return None

    async def _obtain(self, deadline: float | None) -> HttpClientConnection:
        try:
            async with asyncio.timeout_at(deadline):
                while not self._is_closed:
                    if len(self._connections) + self._opening < self._limits.max_connections:
                        return await self._open_or_pass()
                    await self._wait_turn()
                    connection = self._take_idle()
                    if connection is not None:
                        return connection
        except TimeoutError:
            raise ExchangeTimedOut("no connection within the deadline") from None
        raise ConnectFailed(_CLOSED)

    async def _wait_turn(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
            if waiter.done() and not waiter.cancelled():
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        """Something became free: let the longest waiting look."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _open_or_pass(self) -> HttpClientConnection:
        try:
            return await self._connect()
        except BaseException:
            self._wake_next()  # the place is free for somebody else
            raise

    async def _connect(self) -> HttpClientConnection:
        self._check_breaker()
        began_s = self._loop.time()
        self._opening += 1
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                connection = await self._connect_any()
        except asyncio.CancelledError:
            # Out of time, as a rule. One that was cancelled soon says nothing about the server.
            if self._loop.time() - began_s >= _SLOW_CONNECT_S:
                self._count_failure("no answer in time")
            raise
        except EgressRefused as exc:
            raise ConnectFailed(str(exc)) from exc
        except OSError as exc:
            self._count_failure(_reason(exc, self._limits.connect_timeout_s))
            raise ConnectFailed(self._failure) from exc
        finally:
            self._opening -= 1
        self._failed_connects = 0
        self._connections.add(connection)
        return connection

    def _check_breaker(self) -> None:
        """Refuse at once what has failed so often just now, but for one attempt in a while."""
        if self._failed_connects >= self._limits.max_failed_connects:
            now = self._loop.time()
            if now < self._retry_s:
                raise ConnectFailed(self._failure)
            self._retry_s = now + self._limits.cooldown_s

    def _count_failure(self, reason: str) -> None:
        self._failed_connects += 1
        self._failure = f"cannot connect to `{self._target.address}`: {reason}"
        self._retry_s = self._loop.time() + self._limits.cooldown_s

    async def _connect_any(self) -> HttpClientConnection:
        """The first vetted address that answers. Each has its share of the time: none can use up all."""
        addresses = await self._egress.resolve(self._target.host, self._target.port)
        share_s = self._limits.connect_timeout_s / len(addresses)
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(share_s):
                    return await self._connect_to(address)
        return await self._connect_to(addresses[-1])

    async def _connect_to(self, address: str) -> HttpClientConnection:
        _, connection = await self._loop.create_connection(
            lambda: HttpClientConnection(self, self._limits, self._loop),
            address,
            self._target.port,
            ssl=self._tls,
            server_hostname=self._target.host if self._tls is not None else None,
        )
        return connection

    def _close_stale(self) -> None:
        oldest = self._loop.time() - self._limits.idle_s
        # Taken from the right and given back there, so the stalest stand on the left.
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().drop()
        again_s = self._limits.idle_s / 2
        self._sweep = self._loop.call_later(again_s, self._close_stale) if self._idle else None


def _reason(exc: OSError, timeout_s: float) -> str:
    if isinstance(exc, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({exc.verify_message})"
    if isinstance(exc, ssl.SSLError | socket.gaierror) or not exc.errno:
        return exc.strerror or type(exc).__name__
    return os.strerror(exc.errno).lower()
