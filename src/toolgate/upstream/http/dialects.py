"""A stream kept open for what a server says unasked, `list_changed` above all.

It is a convenience: lists are read again after a while anyway. So it never ends a link, gives up where the
server does not offer it, and never reconnects faster than `MIN_DELAY_S`, whatever `retry` a server sends.

The handshake era (2025-03-26 to 2025-11-25): a session, which the server may lose at any time.

A request that was refused because its session is unknown was not executed, so it alone may be sent a
second time. Nothing else is.

The stateless era (2026-07-28): every request stands alone, and closing its connection cancels it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from toolgate.errors import ServerUnavailable
from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY
from toolgate.upstream.connection.contract import (
    NO_CAPABILITIES,
    START_TIMEOUT_S,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerInfo,
    SessionReplaced,
    StartFailed,
)
from toolgate.upstream.connection.messages import (
    LISTEN,
    IncomingMessage,
    build_params,
    encode_cancelled,
    encode_request,
    parse_error,
    parse_response,
)
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import (
    StatefulSubscriptions,
    StatelessSubscriptions,
    notify_missed,
    sends_notifications,
)
from toolgate.upstream.connection.tasks import BackgroundTasks
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.endpoint import HttpSession, trace_lines, with_body, without_body
from toolgate.upstream.http.negotiation import (
    ConnectionLost,
    HttpNegotiation,
    RevisionCheck,
    StreamableEndpoint,
)
from toolgate.upstream.http.responses import (
    REPEATABLE,
    MessageReceiver,
    PendingResponse,
    RequestRejected,
    ResponseMissing,
    retry_after_s,
)
from toolgate.upstream.redaction import Redactor

MIN_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 30.0
_MAX_FAILURES: Final = 8
"""So many attempts in a row without a stream, which takes about two minutes, and it is given up."""

_LASTING_S: Final = 5.0
"""A stream that ends sooner was hardly worth opening; the next waits longer."""


class _StreamAttempt(PendingResponse):
    """One opening of it."""

    __slots__ = ("_on_open", "has_begun")

    def __init__(self, key: bytes, inbox: MessageReceiver, on_open: Callable[[], None]) -> None:
        super().__init__(key, inbox)
        self._on_open = on_open
        self.has_begun = False

    def begin(self) -> None:
        super().begin()
        self.has_begun = True
        self._on_open()


class NotificationStream:
    """One server's stream, opened again and again."""

    def __init__(
        self,
        pool: HttpPool,
        inbox: MessageReceiver,
        *,
        request: Callable[[bytes], tuple[bytes, bytes]],
        on_missed: Callable[[], None],
        on_open: Callable[[], None] | None = None,
    ) -> None:
        """`request` takes a position and makes another request for the stream, after its number if any.

        `on_open` is told whenever the stream has opened, `on_missed` when it was open before: what was said
        in between is lost.
        """
        self._pool = pool
        self._inbox = inbox
        self._request = request
        self._on_missed = on_missed
        self._on_open = on_open
        self._position = b""
        self._delay_s = MIN_DELAY_S
        self._failures = 0
        self._has_opened = False
        self._asked_s = 0
        """How long the server asked to be left alone when it last refused the stream."""

    async def run(self) -> None:
        """Until the server ends it for good, or the caller does."""
        while self._failures < _MAX_FAILURES:
            self._asked_s = 0
            key, request = self._request(self._position)
            stream = _StreamAttempt(key, self._inbox, self._opened)
            began_s = asyncio.get_running_loop().time()
            if await self._ends_with(stream, request):
                return
            lived_s = asyncio.get_running_loop().time() - began_s
            await asyncio.sleep(self._next_delay_s(stream, lived_s))

    async def _ends_with(self, stream: _StreamAttempt, request: bytes) -> bool:
        """Follow one stream to its end. True when there is no point in another."""
        try:
            answer = await self._pool.send(request, deadline=None, sink=stream)
        except (ConnectFailed, ExchangeFailed):
            return False
        is_refused = stream.response is not None and bool(stream.response.error)
        self._asked_s = retry_after_s(answer) or 0
        return is_refused or not (answer.is_stream or answer.status == 429 or answer.status >= 500)

    def _opened(self) -> None:
        if self._on_open is not None:
            self._on_open()
        if self._has_opened:
            self._on_missed()
        self._has_opened = True

    def _next_delay_s(self, stream: _StreamAttempt, lived_s: float) -> float:
        """Twice as long each time, from the start again after a stream that lasted."""
        self._position = stream.position
        self._failures = 0 if stream.has_begun else self._failures + 1
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, _MAX_DELAY_S)
        if stream.has_begun and lived_s > _LASTING_S:
            delay_s, self._delay_s = MIN_DELAY_S, MIN_DELAY_S * 2
        return min(max(delay_s, stream.retry_s, self._asked_s), _MAX_DELAY_S)


_METHOD_NOT_FOUND: Final = -32601
_TELL_TIMEOUT_S: Final = 2.0
_DELIVER_TIMEOUT_S: Final = 10.0
_LEAVE_TIMEOUT_S: Final = 1.0
_MAX_BACKGROUND_SENDS: Final = 32
"""A server that asks more than this at once, beside its answers, is flooding and gets no reply."""


class StatefulDialect:
    """Requests within a session."""

    def __init__(
        self,
        endpoint: StreamableEndpoint,
        background: BackgroundTasks,
        *,
        hello: ServerInfo,
        session: HttpSession,
        listener: ConnectionListener,
        redactor: Redactor,
    ) -> None:
        self._endpoint = endpoint
        self._background = background
        self._hello = hello
        self._listener = listener
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(
            listener, redactor, background=background, tell=self._tell_beside, deliver=self._deliver
        )
        self._relay.era = "legacy"
        self._orders = StatefulSubscriptions(hello, self._ask_quietly, background)
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_failure = "the link has ended"
        self._takes_calls = True
        """Whether a call that lost its session may be sent in the one there is now."""
        self._listening: asyncio.Task[None] | None = None
        self._doubt = RevisionCheck(self._is_still_legacy)
        self._enter(session)

    def _enter(self, session: HttpSession) -> None:
        self._session = session
        self._head = self._endpoint.heads.legacy(session)

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        client: ClientChannel | None,
    ) -> IncomingMessage:
        if client is not None and self._orders.is_quieter_than(client.log_level):
            await self._orders.set_level(client.log_level)
        relay = self._relay
        number = next(self._endpoint.numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        params = relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        try:
            body = encode_request(number, method, params)
            # What mirrors a body is checked by modern servers alone; a trace is for all.
            more = trace_lines(headers) if headers else b""
            answer = await self._ask_within_session(key, body, deadline, more=more, method=method)
            if method == "ping":
                await relay.settled(key)  # see `DedicatedConnection`
        except RequestRejected as exc:
            await self._doubt.check(exc, deadline)
            raise
        except (ExchangeTimedOut, asyncio.CancelledError):
            # In this era a closed connection does not mean "stop".
            self._tell_beside(encode_cancelled(key))
            raise
        else:
            return answer
        finally:
            relay.leave(key)

    async def _ask_within_session(
        self, key: bytes, body: bytes, deadline: float, *, more: bytes, method: str
    ) -> IncomingMessage:
        session = self._session
        try:
            return await self._exchange(key, body, deadline, more=more, method=method)
        except RequestRejected as exc:
            if session.id is None or not _means_session_lost(exc):
                raise
        await self._renewed(session, deadline)
        if method == "tools/call" and not self._takes_calls:
            raise SessionReplaced
        return await self._exchange(key, body, deadline, more=more, method=method)

    async def _exchange(
        self, key: bytes, body: bytes, deadline: float, *, method: str, more: bytes = b""
    ) -> IncomingMessage:
        """The response, from the answer to one POST or from the streams that continue it.

        `more` are lines of the head that are this one's own.
        """
        pending = PendingResponse(key, self._relay)
        session = self._session
        pool = self._endpoint.pool
        try:
            send = pool.send_repeatable if method in REPEATABLE else pool.send
            answer = await send(with_body(self._head + more, body), deadline=deadline, sink=pending)
        except ExchangeFailed:
            if not pending.position:
                raise
        else:
            if pending.response is not None or not (answer.is_stream and pending.position):
                return pending.take(answer)
        while pending.response is None:
            await self._resume(session, pending, pending.deadline(deadline))
        return pending.response

    async def _resume(self, session: HttpSession, pending: PendingResponse, deadline: float) -> None:
        """Ask for the rest of a stream that ended early, as servers may do on purpose (SEP-1699)."""
        position = pending.position
        await _sleep_within(deadline, max(pending.retry_s, MIN_DELAY_S))
        request = without_body(self._endpoint.heads.listen(session, after=position))
        try:
            answer = await self._endpoint.pool.send(request, deadline=deadline, sink=pending)
        except ExchangeFailed:
            return  # broken off again, perhaps further on
        except ConnectFailed as exc:
            raise ExchangeFailed(str(exc)) from exc  # the call itself was sent, after all
        if not answer.is_stream:
            raise ExchangeFailed(f"the server does not resume its stream (status {answer.status})")

    async def _renewed(self, lost: HttpSession, deadline: float) -> None:
        """Returns with another session than `lost`. One handshake serves all who lost it."""
        if self._session is lost:
            if self._renewal is None or self._renewal.done():
                self._renewal = self._background.start(self._renew())
            if self._renewal is not None:
                timeout_s = deadline - asyncio.get_running_loop().time()
                done, _ = await asyncio.wait({self._renewal}, timeout=timeout_s)
                if not done:
                    raise ExchangeTimedOut("the session was lost, and no new one came within the deadline")
        if self._session is lost:
            raise ConnectionLost(self._renewal_failure)

    async def _renew(self) -> None:
        greeting = HttpNegotiation(self._endpoint)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await greeting.hello(known_era="legacy")
        except TimeoutError:
            self._renewal_failure = "the session was lost, and opening another took too long"
        except StartFailed as exc:
            self._renewal_failure = f"the session was lost, and no other opened: {exc}"
        else:
            self._renewal_failure = "the session was lost, and the server now speaks another era"
            if greeting.session is not None:
                self._enter(greeting.session)
                self._takes_calls = self._listener.on_session_replaced()
                self.listen()
                self._orders.renew()
                # Servers lose sessions when they are restarted, often with other tools.
                self._tell_missed()

    async def _is_still_legacy(self, deadline: float) -> bool:
        """Any answer to a ping will do, as long as HTTP delivers it: modern servers refuse it there."""
        number = next(self._endpoint.numbers)
        try:
            body = encode_request(number, "ping", {})
            await self._exchange(b"%d" % number, body, deadline, method="ping")
        except RequestRejected as exc:
            return _means_session_lost(exc)
        return True

    def listen(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        # Where our clients can be asked, servers of the older SDKs ask on this stream.
        if sends_notifications(self._hello) or self._endpoint.capabilities != NO_CAPABILITIES:
            listening = NotificationStream(
                self._endpoint.pool, self._relay, request=self._stream_request, on_missed=self._tell_missed
            )
            self._listening = self._background.start(listening.run())

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._orders.watch(uris)

    def authorize(self, credential: str) -> None:
        self._endpoint.heads.authorize(credential)
        self._enter(self._session)

    async def leave(self) -> None:
        if self._session.id is not None:
            request = without_body(self._endpoint.heads.leave(self._session))
            await self._send_quietly(request, _LEAVE_TIMEOUT_S)

    def _stream_request(self, position: bytes) -> tuple[bytes, bytes]:
        return b"", without_body(self._endpoint.heads.listen(self._session, after=position))

    def _tell_missed(self) -> None:
        notify_missed(self._hello, self._orders.uris, self._listener)

    async def _ask_quietly(self, method: str, params: Params, timeout_s: float) -> RpcResponse:
        """For what is asked beside the calls. Raises ServerUnavailable."""
        try:
            return parse_response(await self.ask(method, params, EMPTY, timeout_s=timeout_s, client=None))
        except (ConnectFailed, ExchangeFailed, ExchangeTimedOut, ConnectionLost, RequestRejected) as exc:
            raise ServerUnavailable(str(exc)) from exc

    def _tell_beside(self, body: bytes) -> None:
        if self._background.size < _MAX_BACKGROUND_SENDS + self._relay.size:
            self._background.start(self._send_quietly(with_body(self._head, body), _TELL_TIMEOUT_S))

    async def _deliver(self, body: bytes) -> None:
        await self._send_quietly(with_body(self._head, body), _DELIVER_TIMEOUT_S)

    async def _send_quietly(self, request: bytes, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        with contextlib.suppress(ConnectFailed, ExchangeFailed, ExchangeTimedOut):
            await self._endpoint.pool.send(request, deadline=deadline)


def _means_session_lost(rejected: RequestRejected) -> bool:
    """404 by the specification, unless it is the answer to a method the server does not know.

    Many servers built after the TypeScript SDK's examples say 400 instead, without the request's id, and
    only their words tell what they mean.
    """
    error = parse_error(rejected.error)
    if rejected.status == 404:
        return not (rejected.is_ours and error.code == _METHOD_NOT_FOUND)
    return rejected.status == 400 and not rejected.is_ours and "session" in error.message.lower()


async def _sleep_within(deadline: float, delay_s: float) -> None:
    left_s = deadline - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, min(delay_s, left_s)))
    if delay_s >= left_s:
        raise ExchangeTimedOut("no answer within the deadline")


class StatelessDialect:
    """Requests to a modern server."""

    def __init__(
        self,
        endpoint: StreamableEndpoint,
        background: BackgroundTasks,
        *,
        hello: ServerInfo,
        listener: ConnectionListener,
        redactor: Redactor,
    ) -> None:
        self._endpoint = endpoint
        self._hello = hello
        self._listener = listener
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(listener, redactor, background=background, tell=_drop, deliver=_never)
        self._orders = StatelessSubscriptions(hello, self._listen, background)
        self._doubt = RevisionCheck(self._is_still_modern)

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        client: ClientChannel | None,
    ) -> IncomingMessage:
        endpoint, relay = self._endpoint, self._relay
        number = next(endpoint.numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        params = relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        pending = PendingResponse(key, relay)
        try:
            request = with_body(
                endpoint.heads.modern(method, headers), encode_request(number, method, params)
            )
            send = endpoint.pool.send_repeatable if method in REPEATABLE else endpoint.pool.send
            return pending.take(await send(request, deadline=deadline, sink=pending))
        except RequestRejected as exc:
            await self._doubt.check(exc, deadline)
            raise
        finally:
            relay.leave(key)

    def listen(self) -> None:
        self._orders.watch(frozenset())

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._orders.watch(uris)

    def authorize(self, credential: str) -> None:
        self._endpoint.heads.authorize(credential)

    async def leave(self) -> None:
        """There is nothing to leave."""

    async def _is_still_modern(self, deadline: float) -> bool:
        timeout_s = deadline - self._clock()
        try:
            response = await self.ask("server/discover", {}, EMPTY, timeout_s=timeout_s, client=None)
        except (RequestRejected, ResponseMissing):
            return False
        return MODERN_VERSION.encode() in (parse_response(response).result or b"")

    async def _listen(self, params: Params, on_open: Callable[[], None]) -> None:
        def request(_position: bytes) -> tuple[bytes, bytes]:
            number = next(self._endpoint.numbers)
            body = encode_request(number, LISTEN, build_params("modern", params))
            return b"%d" % number, with_body(self._endpoint.heads.modern(LISTEN), body)

        await NotificationStream(
            self._endpoint.pool, self._relay, request=request, on_missed=self._tell_missed, on_open=on_open
        ).run()

    def _tell_missed(self) -> None:
        notify_missed(self._hello, self._orders.uris, self._listener)


def _drop(message: bytes) -> None:
    """A server of this era has no requests of its own, and is told nothing beside ours."""


async def _never(message: bytes) -> None:
    """As above."""
