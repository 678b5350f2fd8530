"""The handshake era (2025-03-26 to 2025-11-25): `initialize`, a signed session, one GET stream."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolgate.errors import (
    Conflict,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    UnknownSession,
)
from toolgate.gateway.caller import Caller
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.view import View
from toolgate.model.protocol import LEGACY_VERSIONS
from toolgate.policy.layers import parse_tools_selection
from toolgate.surfaces.http.events import encode_event
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.answers import SERVER_INFO, send_empty, send_result
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.envelope import Message
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.session import Session, Sessions
from toolgate.surfaces.mcp.streams import Streams, Words
from toolgate.surfaces.mcp.tools import DOOR, ToolMethods, cancel_call

VERSIONS: Final = LEGACY_VERSIONS[:3]
"""Newest first: what a client is offered that asks for a version we do not know."""

_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in VERSIONS)})
LIST_CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
MAX_SELECTION: Final = 1_000
CHANGED: Final = encode_event(LIST_CHANGED)
_WORDS: Final = Words(first=b": open\n\n", changed=CHANGED, last=b"")


@dataclass(frozen=True, slots=True)
class Agreed:
    """What an `initialize` leads to."""

    binding: Binding
    """What the session is for: what its URL asks for, or less."""
    version: str
    result: bytes


class LegacyEra:
    """Serves clients that open a session."""

    def __init__(self, gateway: Gateway, sessions: Sessions, *, streams: Streams) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._tools = ToolMethods(gateway)
        self._streams = streams

    async def answer(self, responder: Responder, message: Message, session: Session) -> None:
        """One message of an open session, however it came."""
        if message.method == "tools/call" and message.id is not None:
            await self._tools.call(responder, message, session.binding, era="legacy", session=session)
        elif message.id is None:
            _notified(session, message)
            send_empty(responder, 202)
        elif message.method == "tools/list":
            await self._tools.list(responder, message, session.binding, era="legacy")
        elif message.method == "ping":
            send_result(responder, message.id, b"{}")
        else:
            raise MethodNotFound(f"no method `{message.method}`")

    async def stream(self, exchange: Exchange) -> None:
        """GET: tell the client when its list changes."""
        exchange.accepts("text/event-stream")
        if b"mcp-session-id" not in exchange.headers:
            raise MethodNotAllowed(
                "GET opens the stream of a session; there is none without `Mcp-Session-Id`",
                hint="a client of the 2024 transport says that it accepts `text/event-stream`",
            )
        session = self.session(exchange)
        if session.has_stream:
            raise Conflict("this session's stream is already open", hint="close the other stream first")
        session.has_stream = True
        try:
            await self._streams.announce(exchange, session.binding.caller, _WORDS)
        finally:
            session.has_stream = False

    def end(self, exchange: Exchange) -> None:
        """DELETE: close the session."""
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise InvalidRequest("DELETE needs `Mcp-Session-Id`")
        try:
            self._sessions.end(session_id, exchange.principal)
        except UnknownSession as exc:
            self._note_stranger(exchange, exc)
            raise
        send_empty(exchange.responder, 200)

    def initialize(self, exchange: Exchange, message: Message, binding: Binding) -> None:
        """Open a session for what the URL asks for, `binding`."""
        if message.id is None:
            raise InvalidRequest("`initialize` is a request: it needs an `id`")
        agreed = self.agree(message, binding, VERSIONS)
        session_id = self._sessions.issue(agreed.binding.caller, agreed.version)
        send_result(exchange.responder, message.id, agreed.result, [(b"mcp-session-id", session_id)])

    def agree(self, message: Message, binding: Binding, versions: Sequence[str]) -> Agreed:
        """What to answer `initialize` with, where `versions` are served, newest first."""
        asked = message.text("protocolVersion")
        if asked is None:
            raise InvalidParams("`protocolVersion` is missing")
        version = asked if asked in versions else versions[0]
        if "tools" in message.params:
            binding = Binding(_narrowed(binding, message.params["tools"]))
        return Agreed(binding, version, _initialized(version, binding.view(self._gateway)))

    def check_scope(self, binding: Binding) -> None:
        """Raise what the scope is refused with, before anything is opened for it."""
        binding.view(self._gateway)

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
        self._gateway.record_refused(exchange.principal, exc.code, door=DOOR)


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


def _initialized(version: str, view: View) -> bytes:
    result = {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": msgspec.Raw(SERVER_INFO),
    }
    if view.warnings:
        result["instructions"] = " ".join(view.warnings)
    return msgspec.json.encode(result)


def _notified(session: Session, message: Message) -> None:
    """Of the notifications only a cancellation has an effect; unknown ones have none."""
    if message.method == "notifications/cancelled":
        cancel_call(session, bytes(message.params.get("requestId", b"")))
