"""HTTP/1.1 to one server: a pool of kept-alive connections.

The environment's proxies are never used, and every connection goes to an address that `Egress` has checked.
The pool sends a request at most once, unless the caller says that it may be repeated.
"""

import asyncio
import contextlib
import math
import os
import socket
import ssl
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Final

from toolgate.upstream.http.client_connection import (
    DEFAULT_LIMITS,
    ConnectFailed,
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
"""A connect that is cancelled sooner proves nothing about the server."""
_YIELD_FACTOR: Final = 30
"""A noisy stream yields 30 times as long as it kept the loop busy: noise gets 3 % of the loop."""
_INSTANT_CLOSE_S: Final = 0.1
"""A server that closes an idle connection sooner keeps none. Common keep-alive times begin at 2 s."""
_MAX_DISTRUST_S: Final = 3_600.0  # a choice: after an hour, a server may have been repaired


@cache
def _load_system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


@dataclass(slots=True, eq=False, repr=False)
class HttpPool:
    """Connections to one server. The most recently used one is reused first, so others become idle."""

    _target: HttpTarget
    _egress: Egress
    _: KW_ONLY
    tls: ssl.SSLContext | None = None
    """Holds the trusted authorities; by default, the system's."""
    limits: HttpLimits = DEFAULT_LIMITS
    streams_yield_until_s: float = 0.0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _connections: set[HttpClientConnection] = field(default_factory=set)
    _idle: deque[HttpClientConnection] = field(default_factory=deque)
    # Bounded by the callers: a server's budget admits a limited number of calls.
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _opening: int = 0
    _failed_connects: int = 0
    """In a row."""
    _failure: str = ""
    _retry_s: float = 0.0
    _reuse_s: float = math.inf
    """How soon a kept connection must be reused: half of the server's last keep-alive time."""
    _distrusted_until_s: float = -math.inf
    _distrust_s: float = field(init=False)
    _sweep: asyncio.TimerHandle | None = None
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._distrust_s = self.limits.distrust_s

    @property
    def size(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def is_busy(self) -> bool:
        """Whether a caller waits for a response on any connection, and not only for notifications."""
        return any(one.has_request and one.deadline < math.inf for one in self._connections)

    async def send_repeatable(
        self, request: bytes, *, deadline: float | None, sink: StreamSink | None = None
    ) -> HttpResponse:
        """As `send`, for requests without effect: repeated if the server had closed the connection."""
        with contextlib.suppress(ConnectionStale):
            return await self.send(request, deadline=deadline, sink=sink)
        return await self.send(request, deadline=deadline, sink=sink, is_retry=True)

    async def send(
        self,
        request: bytes,
        *,
        deadline: float | None,
        sink: StreamSink | None = None,
        is_retry: bool = False,
    ) -> HttpResponse:
        """Write `request` on a connection and wait for the response, until `deadline` of the loop's clock.

        Raises ConnectFailed, ExchangeFailed and ExchangeTimedOut. If the server responds with an event
        stream, `sink` takes it, and this returns when the sink has enough or the stream ends.
        `is_retry`: do not reuse a kept connection if a new one can be opened.
        """
        connection = (None if is_retry else self._take_idle()) or await self._obtain(deadline)
        waiter = connection.exchange(request, sink, deadline)
        try:
            return await waiter
        finally:
            connection.abandon(waiter)

    async def start(
        self, request: bytes, *, deadline: float, sink: StreamSink, is_retry: bool = False
    ) -> tuple[HttpClientConnection, asyncio.Future[HttpResponse]]:
        """As `send`, without waiting: the future gets the response, and the sink a stream.

        The caller must `abandon` the future on the connection in the end.
        """
        connection = (None if is_retry else self._take_idle()) or await self._obtain(deadline)
        return connection, connection.exchange(request, sink, deadline)

    def close(self) -> None:
        """Drop all connections; requests in flight fail. Idempotent."""
        self._is_closed = True
        for connection in tuple(self._connections):
            connection.fail(ExchangeFailed(_CLOSED))
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()
        while self._waiters:
            self._wake_next()

    # What connections report

    def resume_stream_at_s(self, took_s: float) -> float:
        """When a stream that kept the loop busy for `took_s` may be read again, by the loop's clock."""
        # One after another: all noisy streams of a server together get one small share.
        until_s = max(self.streams_yield_until_s, self._loop.time()) + took_s * _YIELD_FACTOR
        self.streams_yield_until_s = until_s
        return until_s

    def give_back(self, connection: HttpClientConnection) -> None:
        """`connection` has finished a request and can take another."""
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._waiters:
            self._wake_next()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self.limits.idle_s / 2, self._close_stale)

    def forget(self, connection: HttpClientConnection) -> None:
        """`connection` has ended."""
        self._connections.discard(connection)
        self._wake_next()

    def on_closed_idle(self, idle_s: float) -> None:
        """The server closed a kept connection: idle for this long, or reused after that."""
        now = self._loop.time()
        if now >= self._distrusted_until_s:
            self._reuse_s = math.inf
        self._reuse_s = min(self._reuse_s, idle_s / 2 if idle_s >= _INSTANT_CLOSE_S else 0.0)
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
                    if len(self._connections) + self._opening < self.limits.max_connections:
                        return await self._connect()
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
        """A connection or its slot is free: wake the request that waits longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _connect(self) -> HttpClientConnection:
        try:
            connection = await self._connect_in_time()
        except BaseException:
            self._wake_next()  # the slot is free for another request
            raise
        self._failed_connects = 0
        self._connections.add(connection)
        if self._is_closed:
            connection.drop()
            raise ConnectFailed(_CLOSED)
        return connection

    async def _connect_in_time(self) -> HttpClientConnection:
        began_s = self._loop.time()
        # After repeated failures, fail at once, except for one attempt per cooldown.
        if self._failed_connects >= self.limits.max_failed_connects:
            if began_s < self._retry_s:
                raise ConnectFailed(self._failure)
            self._retry_s = began_s + self.limits.cooldown_s
        self._opening += 1
        try:
            async with asyncio.timeout(self.limits.connect_timeout_s):
                return await self._connect_any()
        except asyncio.CancelledError:
            # Usually out of time. A connect that was cancelled soon proves nothing about the server.
            if self._loop.time() - began_s >= _SLOW_CONNECT_S:
                self._count_failure("no response in time")
            raise
        except EgressRefused as exc:
            raise ConnectFailed(str(exc)) from exc
        except OSError as exc:
            self._count_failure(_describe_error(exc, self.limits.connect_timeout_s))
            raise ConnectFailed(self._failure) from exc
        finally:
            self._opening -= 1

    def _count_failure(self, reason: str) -> None:
        self._failed_connects += 1
        self._failure = f"cannot connect to `{self._target.address}`: {reason}"
        self._retry_s = self._loop.time() + self.limits.cooldown_s

    async def _connect_any(self) -> HttpClientConnection:
        """The first checked address that accepts. Each has its share of the time: none can use it all."""
        addresses = await self._egress.resolve(self._target.host, self._target.port)
        share_s = self.limits.connect_timeout_s / len(addresses)
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(share_s):
                    return await self._connect_to(address)
        return await self._connect_to(addresses[-1])

    async def _connect_to(self, address: str) -> HttpClientConnection:
        if self._target.is_tls and self.tls is None:
            # Reads every authority from disk, which would block the event loop.
            self.tls = await asyncio.to_thread(_load_system_trust)
        _, connection = await self._loop.create_connection(
            lambda: HttpClientConnection(self, self.limits, self._loop),
            address,
            self._target.port,
            ssl=self.tls if self._target.is_tls else None,
            server_hostname=self._target.host if self._target.is_tls else None,
        )
        return connection

    def _close_stale(self) -> None:
        oldest = self._loop.time() - self.limits.idle_s
        # Taken from the right and given back there, so the stalest are on the left.
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().drop()
        again_s = self.limits.idle_s / 2
        self._sweep = self._loop.call_later(again_s, self._close_stale) if self._idle else None


def _describe_error(exc: OSError, timeout_s: float) -> str:
    if isinstance(exc, TimeoutError):
        return f"no response within {timeout_s:g} s"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({exc.verify_message})"
    if isinstance(exc, ssl.SSLError | socket.gaierror) or not exc.errno:
        return exc.strerror or type(exc).__name__
    return os.strerror(exc.errno).lower()
