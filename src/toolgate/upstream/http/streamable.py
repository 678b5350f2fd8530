"""MCP servers over streamable HTTP: stateless connections (2026-07-28), session-based ones (2025-03-26 to
2025-11-25), and the connector.

A server gets the headers in its own record, and the message. Nothing of a caller's HTTP request to the
gateway (credentials, cookies, headers) exists here. A request is sent once, unless it has no effect, or the
server rejects it unread because it has lost the session: then it is sent again in a new one.
"""

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NoReturn, Unpack

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY, ServerRecord, choose_start_timeout
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import (
    DELIVER_TIMEOUT_S,
    MAX_BACKGROUND_SENDS,
    NO_CAPABILITIES,
    NOTIFY_TIMEOUT_S,
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Acknowledgement,
    BackgroundTasks,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerHandshake,
    ServerInfo,
    SessionReplaced,
    StartFailed,
)
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import (
    StatefulSubscriptions,
    StatelessSubscriptions,
    notify_missed,
    sends_notifications,
)
from toolgate.upstream.http.client_connection import (
    ConnectFailed,
    ExchangeFailed,
    ExchangeTimedOut,
    HttpFailure,
)
from toolgate.upstream.http.endpoint import (
    EndpointResolver,
    HttpNegotiation,
    HttpSession,
    RequestHeads,
    StreamableEndpoint,
    encode_trace_headers,
    with_body,
)
from toolgate.upstream.http.responses import (
    MIN_DELAY_S,
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
_END_SESSION_TIMEOUT_S: Final = 1.0  # a choice: a courtesy to the server, and shutdowns wait for it
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


class StatefulConnection(StreamableConnection):
    """Session-based (2025-03-26 to 2025-11-25): one session, which the server may lose at any time."""

    def __init__(
        self,
        endpoint: StreamableEndpoint,
        info: ServerInfo,
        listener: ConnectionListener,
        *,
        session: HttpSession,
    ) -> None:
        super().__init__(endpoint, info, listener)
        subscriptions = StatefulSubscriptions(info, self._send_quietly, self.background)
        self._subscriptions: StatefulSubscriptions = subscriptions
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_failure = "the connection has ended"
        self._takes_calls = True
        """Whether a call that lost its session may be sent in the current one."""
        self._listening: asyncio.Task[None] | None = None
        self._enter_session(session)

    def _enter_session(self, session: HttpSession) -> None:
        self._session = session
        self._head = self._endpoint.heads.in_session(session)

    async def _exchange(
        self, method: str, params: Params, headers: Headers, timeout_s: float, client: ClientChannel | None
    ) -> messages.IncomingMessage:
        if client is not None and self._subscriptions.is_quieter_than(client.log_level):
            await self._subscriptions.set_level(client.log_level)
        relay = self._relay
        number = next(self._endpoint.numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        params = relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        try:
            body = messages.encode_request(number, method, params)
            # Only stateless servers check headers that mirror a body; the trace is for both revisions.
            head_lines = encode_trace_headers(headers) if headers else b""
            session = self._session
            try:
                response = await self._post(key, method, body, deadline, head_lines=head_lines)
            except RequestRejected as exc:
                if session.id is None or not _means_session_lost(exc):
                    raise
                await self._wait_for_renewal(session, deadline)
                if method == "tools/call" and not self._takes_calls:
                    raise SessionReplaced from exc
                response = await self._post(key, method, body, deadline, head_lines=head_lines)
            if method == "ping":
                await relay.settle(key)  # see `DedicatedConnection`
        except RequestRejected as exc:
            await self._check_revision(exc, deadline)
            raise
        except (ExchangeTimedOut, asyncio.CancelledError):
            # In a session, a closed HTTP connection does not cancel the request.
            self._send_now(messages.encode_cancelled(key))
            raise
        else:
            return response
        finally:
            relay.leave(key)

    async def _post(
        self, key: bytes, method: str, body: bytes, deadline: float, *, head_lines: bytes = b""
    ) -> messages.IncomingMessage:
        """The response, from one POST or from the streams that continue it.

        `head_lines` are additional lines of the head, for this request only.
        """
        pending = PendingResponse(key, self._relay)
        session = self._session
        pool = self._endpoint.pool
        try:
            send = pool.send_repeatable if method in REPEATABLE else pool.send
            response = await send(with_body(self._head + head_lines, body), deadline=deadline, sink=pending)
        except ExchangeFailed:
            if not pending.position:
                raise
        else:
            if pending.response is not None or not (response.is_stream and pending.position):
                return pending.parse(response)
        while pending.response is None:
            await self._resume(session, pending, pending.deadline(deadline))
        return pending.response

    async def _resume(self, session: HttpSession, pending: PendingResponse, deadline: float) -> None:
        """Request the rest of a stream that ended early, as servers may do on purpose (SEP-1699)."""
        position = pending.position
        delay_s, left_s = max(pending.retry_s, MIN_DELAY_S), deadline - self._clock()
        await asyncio.sleep(max(0.0, min(delay_s, left_s)))
        if delay_s >= left_s:
            raise ExchangeTimedOut("no response within the deadline")
        request = self._endpoint.heads.listen(session, after=position)
        try:
            response = await self._endpoint.pool.send(request, deadline=deadline, sink=pending)
        except ExchangeFailed:
            return  # broken off again, perhaps further on
        except ConnectFailed as exc:
            raise ExchangeFailed(str(exc)) from exc  # the call itself was sent
        if not response.is_stream:
            raise ExchangeFailed(f"the server does not resume its stream (status {response.status})")

    async def _wait_for_renewal(self, lost: HttpSession, deadline: float) -> None:
        """Return with another session than `lost`. One handshake serves all calls that lost it."""
        if self._session is lost:
            if self._renewal is None or self._renewal.done():
                self._renewal = self.background.start(self._renew())
            if self._renewal is not None:
                done, _ = await asyncio.wait({self._renewal}, timeout=deadline - self._clock())
                if not done:
                    raise ExchangeTimedOut("the session was lost, and no new one came within the deadline")
        if self._session is lost:
            raise ConnectionLost(self._renewal_failure)

    async def _renew(self) -> None:
        negotiation = HttpNegotiation(self._endpoint)
        try:
            await negotiation.run(known_revision="legacy", timeout_s=START_TIMEOUT_S)
        except TimeoutError:
            self._renewal_failure = "the session was lost, and opening another took too long"
        except StartFailed as exc:
            self._renewal_failure = f"the session was lost, and no other opened: {exc}"
        else:
            self._renewal_failure = "the session was lost, and the server now speaks another revision"
            if negotiation.session is not None:
                self._enter_session(negotiation.session)
                self._takes_calls = self._listener.on_session_replaced()
                self.listen()
                self._subscriptions.renew()
                # Servers lose sessions when they restart, often with other tools.
                self._notify_missed()

    async def _has_same_revision(self, deadline: float) -> bool:
        """Any response to a ping will do if HTTP delivers it: stateless servers reject it with a status."""
        number = next(self._endpoint.numbers)
        try:
            await self._post(b"%d" % number, "ping", messages.encode_request(number, "ping", {}), deadline)
        except RequestRejected as exc:
            return _means_session_lost(exc)
        return True

    def listen(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        # If clients take requests, servers on older SDKs send theirs on this stream.
        if sends_notifications(self.server_info) or self._endpoint.capabilities != NO_CAPABILITIES:
            pool, heads = self._endpoint.pool, self._endpoint.heads

            def build_request(position: bytes) -> tuple[bytes, bytes]:
                return b"", heads.listen(self._session, after=position)

            stream = NotificationStream(pool, self._relay, build_request, self._notify_missed)
            self._listening = self.background.start(stream.run())

    def authorize(self, token: str) -> None:
        super().authorize(token)
        self._enter_session(self._session)

    async def _end_session(self) -> None:
        if self._session.id is not None:
            await self._send_bytes(self._endpoint.heads.end_session(self._session), _END_SESSION_TIMEOUT_S)

    async def _send_quietly(self, method: str, params: Params, timeout_s: float) -> RpcResponse:
        """Send a request that is not a call. Raises ServerUnavailable."""
        try:
            return messages.parse_response(await self._exchange(method, params, EMPTY, timeout_s, None))
        except (HttpFailure, ConnectionLost, RequestRejected) as exc:
            raise ServerUnavailable(str(exc)) from exc

    def _send_now(self, message: bytes) -> None:
        if self.background.size < MAX_BACKGROUND_SENDS + self._relay.size:
            self.background.start(self._send_bytes(with_body(self._head, message), NOTIFY_TIMEOUT_S))

    async def _deliver(self, message: bytes) -> None:
        await self._send_bytes(with_body(self._head, message), DELIVER_TIMEOUT_S)

    async def _send_bytes(self, request: bytes, timeout_s: float) -> None:
        with contextlib.suppress(HttpFailure):
            await self._endpoint.pool.send(request, deadline=self._clock() + timeout_s)


def _means_session_lost(rejected: RequestRejected) -> bool:
    """404 by the specification, unless it is the response to a method that the server does not know.

    Many servers built after the TypeScript SDK's examples respond with 400 instead, without the request's id,
    and only the message shows the cause.
    """
    error = messages.parse_error(rejected.error)
    if rejected.status == 404:
        return not (rejected.is_ours and error.code == messages.METHOD_NOT_FOUND)
    return rejected.status == 400 and not rejected.is_ours and "session" in error.message.lower()


@dataclass(frozen=True, slots=True)
class StreamableConnector:
    """The connector of transport `streamable_http`."""

    _resolver: EndpointResolver
    _: KW_ONLY
    start_timeout_s: float = START_TIMEOUT_S
    # One sequence for all connections: a request repeated on a new one must have a new id (SEP-2322).
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    async def __call__(
        self, record: ServerRecord, listener: ConnectionListener, **handshake: Unpack[ServerHandshake]
    ) -> StreamableConnection:
        resolved = self._resolver.resolve(record.http)
        with contextlib.ExitStack() as failed:
            failed.callback(resolved.pool.close)
            redactor = messages.Redactor(resolved.credentials)
            heads = RequestHeads(resolved.target, resolved.headers)
            capabilities = handshake.get("capabilities", SHARED_CAPABILITIES)
            endpoint = StreamableEndpoint(resolved.pool, heads, redactor, self._numbers, capabilities)
            negotiation = HttpNegotiation(endpoint)
            timeout_s = choose_start_timeout(record, self.start_timeout_s)
            try:
                known_revision = handshake["known_revision"]
                info = await negotiation.run(known_revision=known_revision, timeout_s=timeout_s)
            except TimeoutError as exc:
                raise StartFailed(f"no response within {timeout_s:g} s", state="list_timeout") from exc
            except StartFailed as exc:
                raise exc.with_message(redactor.text(str(exc))) from exc
            failed.pop_all()
        connection: StreamableConnection
        if info.revision == "legacy" and negotiation.session is not None:
            connection = StatefulConnection(endpoint, info, listener, session=negotiation.session)
        else:
            connection = StatelessConnection(endpoint, info, listener)
        connection.listen()
        return connection
