"""The client of a session, as the server of one of its requests can reach it: on the stream of the answer.

What the client of a session wants to hear of by itself: log messages, and updates of resources.

It holds for the session on this node, for as long as the node knows it.

The handshake era (2025-03-26 to 2025-11-25): `initialize`, a signed session, one GET stream.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolgate.catalog.encoding import InputRequired
from toolgate.errors import (
    CallCancelled,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    ToolgateError,
    UnknownResource,
    UnknownSession,
)
from toolgate.gateway.call.elicitation import (
    MAX_ROUNDS,
    UNSUPPORTED,
    can_answer,
    collect_inputs,
    too_many_rounds,
)
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions.listeners import Subscription
from toolgate.model.protocol import CANCELLED, LEGACY_VERSIONS, LOG_MESSAGE
from toolgate.policy.layers import parse_tools_selection
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.http.responder import EVENT_HEADERS
from toolgate.surfaces.mcp.binding import SURFACE, CallerBinding
from toolgate.surfaces.mcp.capabilities import (
    build_server_capabilities,
    filter_client_capabilities,
    is_severe_enough,
    parse_log_level,
)
from toolgate.surfaces.mcp.dispatch import (
    LIST_KINDS,
    SERVER_METHODS,
    make_dispatcher,
    send_failure,
    send_server_response,
)
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.responses import SERVER_INFO, encode_notification, send_empty, send_result
from toolgate.surfaces.mcp.session import ClientSession, ClientSessions
from toolgate.surfaces.mcp.streams import (
    ClientStreams,
    encode_first_event,
    make_change_encoder,
    parse_picture,
    send_changes,
)
from toolgate.upstream.connection.contract import NO_CAPABILITIES, RpcResponse

DEFAULT_LEVEL: Final = "info"
"""What servers that send log messages on demand only are asked for, where the client said nothing."""


class SessionClient:
    """Behind one request of a session. A client that takes no event stream can be told and asked nothing."""

    __slots__ = ("binding", "capabilities", "log_level", "principal_id", "responder", "session")
    has_session: Final = True

    def __init__(
        self, session: ClientSession, responder: Responder, *, binding: CallerBinding, hears: bool
    ) -> None:
        self.session = session
        self.responder = responder
        self.binding = binding
        """By which its request is decided, however long that takes."""
        self.principal_id = session.principal_id
        self.capabilities = session.capabilities if hears else NO_CAPABILITIES
        self.log_level = session.log_level or DEFAULT_LEVEL if hears else ""

    def notify(self, method: str, params: bytes) -> None:
        if self.log_level and (method != LOG_MESSAGE or is_severe_enough(params, self.session.log_level)):
            self.responder.say(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> RpcResponse:
        if not can_answer(self.capabilities, method, params):
            return UNSUPPORTED
        self.session.totals.rounds += 1
        principal = self.binding.caller.principal
        return await self.session.asks.put(self.responder, method, params, principal=principal)


class SessionSettings:
    """Takes the wishes of sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def change(
        self, message: McpMessage, session: ClientSession, *, binding: CallerBinding, trace: Trace
    ) -> None:
        """`logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`. Raises MethodNotFound."""
        if message.method == "logging/setLevel":
            session.log_level = parse_log_level(message.text("level"))
        elif message.method == "resources/subscribe":
            await self._subscribe(_require_uri(message), session, binding, trace)
        elif message.method == "resources/unsubscribe":
            await self._unsubscribe(_require_uri(message), session, binding, trace)
        else:
            raise MethodNotFound(f"no method `{message.method}`")

    async def _subscribe(
        self, uri: str, session: ClientSession, binding: CallerBinding, trace: Trace, /
    ) -> None:
        view = await self._gateway.wait_for_view(binding.caller, for_call=True)
        if not await self._gateway.resource_subscriptions.subscribe(view, session.watch, [uri], trace=trace):
            raise UnknownResource("Resource not found", data={"uri": uri})

    async def _unsubscribe(
        self, uri: str, session: ClientSession, binding: CallerBinding, trace: Trace, /
    ) -> None:
        """Also of what the client may not see any more."""
        try:
            view = await self._gateway.wait_for_view(binding.caller, for_call=True)
        except ToolgateError:  # whoever may see nothing any more need not hear of anything either
            if uri not in session.watch.targets:
                raise
            self._gateway.subscriptions.watches.remove(session.watch, uri)
        else:
            await self._gateway.resource_subscriptions.unsubscribe(view, session.watch, uri, trace=trace)


def _require_uri(message: McpMessage) -> str:
    uri = message.text("uri")
    if not uri:
        raise InvalidParams("`uri` is missing")
    return uri


STATEFUL_VERSIONS: Final = LEGACY_VERSIONS[:3]
"""Newest first: what a client is offered that asks for a version we do not know."""

_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in STATEFUL_VERSIONS)})
MAX_SELECTION: Final = 1_000
CATCH_UP_S: Final = 2.0
"""How long a session waits for a node that has not heard yet of what it was opened with."""
_OF_A_ROUND: Final = frozenset({"inputResponses", "requestState"})


@dataclass(frozen=True, slots=True)
class Handshake:
    """What an `initialize` leads to."""

    binding: CallerBinding
    """What the session is for: what its URL asks for, or less."""
    version: str
    capabilities: bytes
    """The client's, as far as they are carried."""
    result: bytes


class StatefulHandler:
    """Serves clients that open a session."""

    def __init__(self, gateway: Gateway, sessions: ClientSessions, *, streams: ClientStreams) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._methods = make_dispatcher(gateway)
        self._hearing = SessionSettings(gateway)
        self._streams = streams
        sessions.on_dropped = self._record_end

    def answer(
        self,
        responder: Responder,
        message: McpMessage,
        session: ClientSession,
        *,
        binding: CallerBinding,
        hears: bool = True,
    ) -> Awaitable[None]:
        """One message of an open session, however it came. `hears`: it takes messages ahead of an answer.

        `binding` is the session's for the credential that the message came with.
        """
        client = SessionClient(session, responder, binding=binding, hears=hears)
        is_known = session.revision <= self._gateway.snapshot.revision
        if is_known and message.id is not None and message.method in SERVER_METHODS:
            return self._ask(message, client)
        return self._answer(message, client)

    async def _answer(self, message: McpMessage, client: SessionClient) -> None:
        session, responder = client.session, client.responder
        if session.revision > self._gateway.snapshot.revision:
            await self._catch_up(session)
        if message.id is None:
            _handle_notification(session, message)
            send_empty(responder, 202)
        elif message.method in SERVER_METHODS:
            await self._ask(message, client)
        elif message.method in LIST_KINDS:
            await self._methods.list(responder, message, client.binding, era="legacy")
        else:
            if message.method != "ping":
                trace = self._methods.trace(message, session.nonce)
                await self._hearing.change(message, session, binding=client.binding, trace=trace)
            send_result(responder, message.id, b"{}")

    async def _catch_up(self, session: ClientSession) -> None:
        """Wait, once, until this node knows what the session was opened with on another."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._gateway.wait_for_revision(session.revision)
        session.revision = 0  # a registry that was put back may never come that far

    async def _ask(self, message: McpMessage, client: SessionClient) -> None:
        """Answer what goes to a server. The client may take it back while it runs."""
        session, responder = client.session, client.responder
        request_id, handler = message.id or b"null", responder.task
        session.totals.calls += message.method == "tools/call"
        session.calls[request_id] = handler
        if "requestState" in message.params or "inputResponses" in message.params:
            # A modern server would take them for an answer to what it asked this client, or another.
            message.params = {name: raw for name, raw in message.params.items() if name not in _OF_A_ROUND}
        try:
            try:
                answer = await self._methods.ask(
                    message, client.binding, client=client, session=session.nonce
                )
                send_server_response(responder, message, answer, era="legacy")
            except InputRequired as needed:
                await self._run_rounds(message, client, needed)
        except ToolgateError as exc:
            session.totals.count_limit_hit(self._gateway.metrics, SURFACE, exc.code)
            if not send_failure(responder, message, exc, era="legacy"):
                raise
        except asyncio.CancelledError:
            if session.calls.get(request_id) is handler:
                raise  # not by `_cancel`: the client is gone, or the gateway stops
            handler.uncancel()
            raise CallCancelled("the call was cancelled by its client") from None
        finally:
            if session.calls.get(request_id) is handler:
                del session.calls[request_id]

    async def _run_rounds(self, message: McpMessage, client: SessionClient, needed: InputRequired) -> None:
        """Take the client through the questions of a modern server: each round is a request of its own."""
        session, asked = client.session, message.params
        for message.round in range(1, MAX_ROUNDS + 1):
            message.params = asked | await collect_inputs(client, needed)
            try:
                answer = await self._methods.ask(
                    message, client.binding, client=client, session=session.nonce
                )
                send_server_response(client.responder, message, answer, era="legacy")
            except InputRequired as again:
                needed = again
            else:
                return
        raise too_many_rounds()

    async def stream(self, exchange: McpExchange) -> None:
        """GET: tell the client when its lists and resources change, and what it missed before."""
        exchange.require_accept("text/event-stream")
        if b"mcp-session-id" not in exchange.headers:
            raise MethodNotAllowed(
                "GET opens the stream of a session; there is none without `Mcp-Session-Id`",
                hint="a client of the 2024 transport says that it accepts `text/event-stream`",
                data={"allowed": ["POST", "DELETE"]},
            )
        session = self.session(exchange)
        with self.listening(exchange, session) as subscription:
            responder = exchange.responder
            responder.start(200, EVENT_HEADERS)
            last_id = exchange.headers.get(b"last-event-id")
            seen = subscription.seen if last_id is None else parse_picture(last_id)
            can_resume = session.version == STATEFUL_VERSIONS[0]
            await responder.write(encode_first_event(seen) if can_resume else b": open\n\n")
            if last_id is not None:
                # After a restart the lists are not known at once, and what is not known has not changed.
                with suppress(ToolgateError):
                    await self._gateway.wait_for_view(subscription.caller)
                subscription.catch_up(seen)
            await send_changes(responder, subscription, make_change_encoder(subscription))
            responder.end()

    @contextmanager
    def listening(self, exchange: McpExchange, session: ClientSession) -> Iterator[Subscription]:
        """Have one of the places for streams, as the one stream of the session."""
        try:
            with (
                self._streams.open(
                    exchange, session.bind(exchange.principal).caller, watch=session.watch
                ) as subscription,
                session.listening(subscription),
            ):
                yield subscription
        finally:
            if session.has_ended:
                self._let_go(session)

    def _record_end(self, session: ClientSession) -> None:
        """A session is over here: record what it used, and keep nothing for it."""
        session.totals.record_end(
            self._gateway.audit,
            self._gateway.metrics,
            session.caller,
            Trace(SURFACE, session.nonce),
            ended_by=session.ended_by,
        )
        self._let_go(session)

    def _let_go(self, session: ClientSession) -> None:
        """Keep nothing for a session that this node does not know, once the stream it may have is over."""
        if session.stream is not None:
            return
        self._gateway.subscriptions.watches.drop(session.watch)
        if session.has_ended:
            self._gateway.servers.end_session(session.nonce)

    def end(self, exchange: McpExchange) -> None:
        """DELETE: close the session."""
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise InvalidRequest("DELETE needs `Mcp-Session-Id`")
        try:
            self._sessions.end(session_id, exchange.principal, everywhere=True)
        except UnknownSession as exc:
            self._note_stranger(exchange, exc)
            raise
        send_empty(exchange.responder, 200)

    def initialize(self, exchange: McpExchange, message: McpMessage, binding: CallerBinding) -> None:
        """Open a session for what the URL asks for, `binding`."""
        if message.id is None:
            raise InvalidRequest("`initialize` is a request: it needs an `id`")
        agreed = self.negotiate(message, binding, STATEFUL_VERSIONS)
        session_id = self._sessions.issue(
            agreed.binding.caller,
            agreed.version,
            agreed.capabilities,
            revision=self._gateway.snapshot.revision,
        )
        send_result(exchange.responder, message.id, agreed.result, [(b"mcp-session-id", session_id)])

    def negotiate(self, message: McpMessage, binding: CallerBinding, versions: Sequence[str]) -> Handshake:
        """What to answer `initialize` with, where `versions` are served, newest first."""
        asked = message.text("protocolVersion")
        if asked is None:
            raise InvalidParams("`protocolVersion` is missing")
        version = asked if asked in versions else versions[0]
        if "tools" in message.params:
            binding = CallerBinding(_narrow_caller(binding, message.params["tools"]))
        capabilities = filter_client_capabilities(message.params.get("capabilities"))
        result = _encode_initialize_result(version, *binding.initial_view(self._gateway))
        return Handshake(binding, version, capabilities, result)

    def check_scope(self, binding: CallerBinding) -> None:
        """Raise what the scope is refused with, before anything is opened for it. Its size is for later."""
        binding.calling_view(self._gateway)

    def find_session(self, exchange: McpExchange, session_id: bytes) -> ClientSession:
        """The caller's own session of that id. Raises UnknownSession."""
        try:
            return self._sessions.find(session_id, exchange.principal)
        except UnknownSession as exc:
            self._note_stranger(exchange, exc)
            raise

    def session(self, exchange: McpExchange) -> ClientSession:
        """The session that the headers name. Raises UnknownSession and InvalidRequest."""
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise InvalidRequest(
                "no session: send `initialize` first",
                hint="or send the 2026-07-28 envelope with each request",
            )
        if exchange.headers.get(b"mcp-protocol-version") not in _VERSIONS_SENT:
            raise InvalidRequest("`MCP-Protocol-Version` is not one of this era")
        return self.find_session(exchange, session_id)

    def _note_stranger(self, exchange: McpExchange, exc: UnknownSession) -> None:
        """A session that is not the caller's, or none at all, may be somebody trying: that is audited."""
        self._gateway.record_refused(exchange.principal, exc.code, trace=Trace(SURFACE))


def _narrow_caller(binding: CallerBinding, raw: msgspec.Raw) -> Caller:
    """`initialize` may carry `params.tools[]`: it narrows the URL's selection, never widens it."""
    try:
        items = msgspec.json.decode(raw, type=list[str])
    except msgspec.ValidationError as exc:
        raise InvalidParams("`tools` must be a list of tool names") from exc
    if len(items) > MAX_SELECTION:
        raise InvalidParams(f"`tools` names more than {MAX_SELECTION} tools")
    caller = binding.caller
    selection = parse_tools_selection(items)
    if caller.request.tools is None:
        return replace(caller, request=replace(caller.request, tools=selection))
    return replace(caller, request=replace(caller.request, allow=selection))


def _encode_initialize_result(version: str, view: View, instructions: str) -> bytes:
    result = {
        "protocolVersion": version,
        "capabilities": build_server_capabilities(view),
        "serverInfo": msgspec.Raw(SERVER_INFO),
    }
    if instructions:
        result["instructions"] = instructions
    return msgspec.json.encode(result)


def _handle_notification(session: ClientSession, message: McpMessage) -> None:
    """Of the notifications only a cancellation has an effect; unknown ones have none."""
    if message.method == CANCELLED:
        _cancel_request(session, bytes(message.params.get("requestId", b"")))


def _cancel_request(session: ClientSession, request_id: bytes) -> None:
    """Take back a running request of a session; unknown ids have no effect."""
    handler = session.calls.pop(request_id, None)
    if handler is not None:
        handler.cancel()
