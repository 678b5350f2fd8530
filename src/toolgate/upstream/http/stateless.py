"""A connection over streamable HTTP, and its stateless form (2026-07-28): every request is independent.

A server gets the headers in its own record, and the message. Nothing of a caller's HTTP request to the
gateway (credentials, cookies, headers) exists here. A request is sent once, unless it has no effect.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    Acknowledgement,
    BackgroundTasks,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerInfo,
)
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import (
    StatefulSubscriptions,
    StatelessSubscriptions,
    notify_missed,
)
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpFailure
from toolgate.upstream.http.endpoint import StreamableEndpoint, with_body
from toolgate.upstream.http.responses import (
    REPEATABLE,
    NotificationStream,
    PendingResponse,
    RequestRejected,
    ResponseMissing,
    build_unknown_outcome,
    convert_rejection,
)

_ODD_STATUSES: Final = (400, 404, 405, 406, 415)
"""Statuses of a server after an upgrade to a version that supports only the other revision."""
_CHECK_EVERY_S: Final = 5.0  # a choice: calls that fail all the time cost a healthy server one check in 5 s
_CHECK_TIMEOUT_S: Final = 2.0  # as `PROBE_TIMEOUT_S`: the caller waits for its error meanwhile


Headers = Mapping[str, str]


class ConnectionLost(Exception):
    """The server is reachable but is not the one of the handshake, so the connection is useless."""


class StreamableConnection:
    """A server over streamable HTTP. Subclasses send requests in one protocol revision."""

    _subscriptions: StatefulSubscriptions | StatelessSubscriptions

    def __init__(self, endpoint: StreamableEndpoint, info: ServerInfo, listener: ConnectionListener) -> None:
        self.server_info = endpoint.redactor.mask_info(info)
        self.pid: int | None = None
        self._endpoint = endpoint
        self._redactor = endpoint.redactor
        self._listener = listener
        self.background = BackgroundTasks()
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(listener, self._redactor, self.background, self._send_now, self._deliver)
        self._relay.revision = info.revision
        self._checked_s = -math.inf
        """When the gateway last checked that the server supports this revision."""
        self._end: str | None = None
        self.on_refused: Callable[[ServerUnavailable], None] = lambda _refusal: None
        """Called with the error of a call that the server rejected by a status. May raise a better one."""

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Headers = EMPTY,
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        if self._end is not None:
            raise ServerUnavailable(self._end)
        try:
            message = await self._exchange(method, params, headers, timeout_s, client)
        except RequestRejected as exc:
            try:
                return convert_rejection(exc, self._redactor)
            except ServerUnavailable as refusal:
                self.on_refused(refusal)
                raise
        except ExchangeTimedOut as exc:
            raise CallTimedOut(f"no response from the server within {timeout_s:g} s") from exc
        except (HttpFailure, ConnectionLost) as exc:
            self._fail(exc)
        return self._redactor.mask_response(messages.parse_response(message))

    def authorize(self, token: str) -> None:
        """Send `token` with every request from now on."""
        self._redactor.learn(token)
        self._endpoint.heads.authorize(f"Bearer {token}")

    async def aclose(self) -> None:
        if self._end is None:
            self._end = "the connection was closed"
            try:
                await self.background.aclose()
                await self._end_session()
            finally:
                self._endpoint.pool.close()

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._subscriptions.watch(uris)

    def listen(self) -> None:
        """Open the notification stream, if the server announces notifications."""
        raise NotImplementedError

    async def _exchange(
        self, method: str, params: Params, headers: Headers, timeout_s: float, client: ClientChannel | None
    ) -> messages.IncomingMessage:
        """Send a request once; returns its response. Raises HttpFailure, RequestRejected, ConnectionLost."""
        raise NotImplementedError

    async def _has_same_revision(self, deadline: float) -> bool:
        """Check with the server that it still supports this revision. Raises HttpFailure."""
        raise NotImplementedError

    # A stateless server sends no requests, and gets nothing but requests. It has no session.

    def _send_now(self, message: bytes) -> None:
        """Send a message other than a request, or drop it."""

    async def _deliver(self, message: bytes) -> None:
        """Send a message that the server waits for."""

    async def _end_session(self) -> None:
        """End the session, within a moment. Does not raise."""

    async def _check_revision(self, rejected: RequestRejected, deadline: float) -> None:
        """Raise ConnectionLost if the server has changed its revision, as after an upgrade.

        Only a status that a server of this revision rarely sends leads to a check, at most every few seconds:
        calls that are wrong by themselves cost the server little.
        """
        now_s = self._clock()
        if rejected.status not in _ODD_STATUSES or now_s - self._checked_s < _CHECK_EVERY_S:
            return
        self._checked_s = now_s
        try:
            is_same = await self._has_same_revision(min(deadline, now_s + _CHECK_TIMEOUT_S))
        except HttpFailure:
            return
        if not is_same:
            raise ConnectionLost(
                "the server no longer supports the negotiated protocol revision"
            ) from rejected

    def _notify_missed(self) -> None:
        notify_missed(self.server_info, self._subscriptions.uris, self._listener)

    def _fail(self, error: HttpFailure | ConnectionLost) -> NoReturn:
        if isinstance(error, ExchangeFailed):
            raise build_unknown_outcome(str(error)) from error
        reason = self._redactor.text(str(error))
        # Other calls may still run on open connections: one refused connect ends only an idle connection.
        is_useless = isinstance(error, ConnectionLost) or not self._endpoint.pool.is_busy
        if is_useless and self._end is None:
            self._end = reason
            self.background.cancel()
            self._endpoint.pool.close()
            self._listener.on_closed(reason)
        raise ServerUnavailable(reason) from error


class StatelessConnection(StreamableConnection):
    """Stateless (2026-07-28): every request is independent, and closing its connection cancels it."""

    def __init__(self, endpoint: StreamableEndpoint, info: ServerInfo, listener: ConnectionListener) -> None:
        super().__init__(endpoint, info, listener)
        self._subscriptions = StatelessSubscriptions(info, self._follow, self.background)

    async def _exchange(
        self, method: str, params: Params, headers: Headers, timeout_s: float, client: ClientChannel | None
    ) -> messages.IncomingMessage:
        endpoint, relay = self._endpoint, self._relay
        number = next(endpoint.numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        params = relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        pending = PendingResponse(key, relay)
        try:
            body = messages.encode_request(number, method, params)
            request = with_body(endpoint.heads.stateless(method, headers), body)
            send = endpoint.pool.send_repeatable if method in REPEATABLE else endpoint.pool.send
            return pending.parse(await send(request, deadline=deadline, sink=pending))
        except RequestRejected as exc:
            await self._check_revision(exc, deadline)
            raise
        finally:
            relay.leave(key)

    def listen(self) -> None:
        self._subscriptions.watch(frozenset())

    async def _has_same_revision(self, deadline: float) -> bool:
        timeout_s = deadline - self._clock()
        try:
            response = await self._exchange("server/discover", {}, EMPTY, timeout_s, None)
        except (RequestRejected, ResponseMissing):
            return False
        return MODERN_VERSION.encode() in (messages.parse_response(response).result or b"")

    async def _follow(self, params: Params, on_open: Callable[[], None]) -> None:
        def build_request(_position: bytes) -> tuple[bytes, bytes]:
            number = next(self._endpoint.numbers)
            body = messages.encode_request(number, messages.LISTEN, messages.build_params("modern", params))
            return b"%d" % number, with_body(self._endpoint.heads.stateless(messages.LISTEN), body)

        pool, on_missed = self._endpoint.pool, self._notify_missed
        await NotificationStream(pool, self._relay, build_request, on_missed, on_open).run()
