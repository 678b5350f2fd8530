"""The handshake era (2025-03-26 to 2025-11-25): `initialize`, a signed session, one GET stream."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolgate.catalog.encoding import InputNeeded
from toolgate.errors import (
    CallCancelled,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    ToolgateError,
    UnknownSession,
)
from toolgate.gateway.call.elicitation import MAX_ROUNDS, answer_inputs, too_many_rounds
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.gateway.subscriptions.listeners import Subscription
from toolgate.model.protocol import CANCELLED, LEGACY_VERSIONS
from toolgate.policy.layers import parse_tools_selection
from toolgate.surfaces.http.events import EVENT_HEADERS
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.binding import DOOR, Binding
from toolgate.surfaces.mcp.capabilities import announced_capabilities, carried_capabilities
from toolgate.surfaces.mcp.client_side import SessionClient
from toolgate.surfaces.mcp.dispatch import LISTS, REQUESTS, send_answer, send_failure
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.hearing import Hearing
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.surfaces.mcp.responses import SERVER_INFO, send_empty, send_result
from toolgate.surfaces.mcp.resuming import encode_opening, encoder_of, parse_picture
from toolgate.surfaces.mcp.session import Session, Sessions
from toolgate.surfaces.mcp.streams import Streams, announce_changes
from toolgate.surfaces.mcp.tracing import methods_of

VERSIONS: Final = LEGACY_VERSIONS[:3]
"""Newest first: what a client is offered that asks for a version we do not know."""

_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in VERSIONS)})
MAX_SELECTION: Final = 1_000
CATCH_UP_S: Final = 2.0
"""How long a session waits for a node that has not heard yet of what it was opened with."""
_OF_A_ROUND: Final = frozenset({"inputResponses", "requestState"})


@dataclass(frozen=True, slots=True)
class Agreed:
    """What an `initialize` leads to."""

    binding: Binding
    """What the session is for: what its URL asks for, or less."""
    version: str
    capabilities: bytes
    """The client's, as far as they are carried."""
    result: bytes


class LegacyEra:
    """Serves clients that open a session."""

    def __init__(self, gateway: Gateway, sessions: Sessions, *, streams: Streams) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._methods = methods_of(gateway)
        self._hearing = Hearing(gateway)
        self._streams = streams
        sessions.on_dropped = self._record_end

    def answer(
        self,
        responder: Responder,
        message: Message,
        session: Session,
        *,
        binding: Binding,
        hears: bool = True,
    ) -> Awaitable[None]:
        """One message of an open session, however it came. `hears`: it takes messages ahead of an answer.

        `binding` is the session's for the credential that the message came with.
        """
        client = SessionClient(session, responder, binding=binding, hears=hears)
        is_known = session.revision <= self._gateway.snapshot.revision
        if is_known and message.id is not None and message.method in REQUESTS:
            return self._ask(message, client)
        return self._answer(message, client)

    async def _answer(self, message: Message, client: SessionClient) -> None:
        session, responder = client.session, client.responder
        if session.revision > self._gateway.snapshot.revision:
            await self._catch_up(session)
        if message.id is None:
            _notified(session, message)
            send_empty(responder, 202)
        elif message.method in REQUESTS:
            await self._ask(message, client)
        elif message.method in LISTS:
            await self._methods.list(responder, message, client.binding, era="legacy")
        else:
            if message.method != "ping":
                trace = self._methods.trace(message, session.nonce)
                await self._hearing.change(message, session, binding=client.binding, trace=trace)
            send_result(responder, message.id, b"{}")

    async def _catch_up(self, session: Session) -> None:
        """Wait, once, until this node knows what the session was opened with on another."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._gateway.reached(session.revision)
        session.revision = 0  # a registry that was put back may never come that far

    async def _ask(self, message: Message, client: SessionClient) -> None:
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
                send_answer(responder, message, answer, era="legacy")
            except InputNeeded as needed:
                await self._go_on(message, client, needed)
        except ToolgateError as exc:
            session.totals.note_failure(self._gateway, DOOR, exc.code)
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

    async def _go_on(self, message: Message, client: SessionClient, needed: InputNeeded) -> None:
        """Take the client through the questions of a modern server: each round is a request of its own."""
        session, asked = client.session, message.params
        for message.round in range(1, MAX_ROUNDS + 1):
            message.params = asked | await answer_inputs(client, needed)
            try:
                answer = await self._methods.ask(
                    message, client.binding, client=client, session=session.nonce
                )
                send_answer(client.responder, message, answer, era="legacy")
            except InputNeeded as again:
                needed = again
            else:
                return
        raise too_many_rounds()

    async def stream(self, exchange: Exchange) -> None:
        """GET: tell the client when its lists and resources change, and what it missed before."""
        exchange.accepts("text/event-stream")
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
            seen = subscription.picture if last_id is None else parse_picture(last_id)
            can_resume = session.version == VERSIONS[0]
            await responder.write(encode_opening(seen) if can_resume else b": open\n\n")
            if last_id is not None:
                # After a restart the lists are not known at once, and what is not known has not changed.
                with suppress(ToolgateError):
                    await self._gateway.settled_view(subscription.caller)
                subscription.catch_up(seen)
            await announce_changes(responder, subscription, encoder_of(subscription))
            responder.end()

    @contextmanager
    def listening(self, exchange: Exchange, session: Session) -> Iterator[Subscription]:
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

    def _record_end(self, session: Session) -> None:
        """A session is over here: record what it used, and keep nothing for it."""
        session.totals.record_end(self._gateway, session.caller, Trace(DOOR, session.nonce), session.ended_by)
        self._let_go(session)

    def _let_go(self, session: Session) -> None:
        """Keep nothing for a session that this node does not know, once the stream it may have is over."""
        if session.stream is not None:
            return
        self._gateway.subscriptions.watches.drop(session.watch)
        if session.has_ended:
            self._gateway.servers.end_session(session.nonce)

    def end(self, exchange: Exchange) -> None:
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

    def initialize(self, exchange: Exchange, message: Message, binding: Binding) -> None:
        """Open a session for what the URL asks for, `binding`."""
        if message.id is None:
            raise InvalidRequest("`initialize` is a request: it needs an `id`")
        agreed = self.agree(message, binding, VERSIONS)
        session_id = self._sessions.issue(
            agreed.binding.caller,
            agreed.version,
            agreed.capabilities,
            revision=self._gateway.snapshot.revision,
        )
        send_result(exchange.responder, message.id, agreed.result, [(b"mcp-session-id", session_id)])

    def agree(self, message: Message, binding: Binding, versions: Sequence[str]) -> Agreed:
        """What to answer `initialize` with, where `versions` are served, newest first."""
        asked = message.text("protocolVersion")
        if asked is None:
            raise InvalidParams("`protocolVersion` is missing")
        version = asked if asked in versions else versions[0]
        if "tools" in message.params:
            binding = Binding(_narrowed(binding, message.params["tools"]))
        capabilities = carried_capabilities(message.params.get("capabilities"))
        result = _initialized(version, *binding.opening_view(self._gateway))
        return Agreed(binding, version, capabilities, result)

    def check_scope(self, binding: Binding) -> None:
        """Raise what the scope is refused with, before anything is opened for it. Its size is for later."""
        binding.calling_view(self._gateway)

    def find_session(self, exchange: Exchange, session_id: bytes) -> Session:
        """The caller's own session of that id. Raises UnknownSession."""
        try:
            return self._sessions.find(session_id, exchange.principal)
        except UnknownSession as exc:
            self._note_stranger(exchange, exc)
            raise

    def session(self, exchange: Exchange) -> Session:
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

    def _note_stranger(self, exchange: Exchange, exc: UnknownSession) -> None:
        """A session that is not the caller's, or none at all, may be somebody trying: that is audited."""
        self._gateway.record_refused(exchange.principal, exc.code, trace=Trace(DOOR))


def _narrowed(binding: Binding, raw: msgspec.Raw) -> Caller:
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


def _initialized(version: str, view: View, instructions: str) -> bytes:
    result = {
        "protocolVersion": version,
        "capabilities": announced_capabilities(view),
        "serverInfo": msgspec.Raw(SERVER_INFO),
    }
    if instructions:
        result["instructions"] = instructions
    return msgspec.json.encode(result)


def _notified(session: Session, message: Message) -> None:
    """Of the notifications only a cancellation has an effect; unknown ones have none."""
    if message.method == CANCELLED:
        _cancel(session, bytes(message.params.get("requestId", b"")))


def _cancel(session: Session, request_id: bytes) -> None:
    """Take back a running request of a session; unknown ids have no effect."""
    handler = session.calls.pop(request_id, None)
    if handler is not None:
        handler.cancel()
