"""What all revisions share: lists from memory, requests that go to a server, and declared capabilities.

Revisions differ only in the shape of the response. With tracing on, each request is a span. Nothing here
waits for a server unless the request needs one. Clients and servers rely on declared capabilities, so the
gateway declares none that it cannot carry.
"""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidParams, ToolgateError
from toolgate.gateway.call.pipeline import note_response, span_attributes
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import UNREADABLE, Members, decode_members
from toolgate.model.protocol import LIST_METHODS, LOG_LEVELS
from toolgate.model.tools import FEATURES, ListKind, Revision
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.exchange import SURFACE, CallerBinding
from toolgate.surfaces.mcp.jsonrpc import MAX_NAME_CHARS, McpMessage
from toolgate.surfaces.mcp.responses import SERVER_INFO, send_result
from toolgate.telemetry.spans import (
    MAX_SPAN_NAME_CHARS,
    TRACEPARENT,
    TRACESTATE,
    Span,
    Tracer,
    make_span_name,
)
from toolgate.upstream.connection.contract import ClientChannel
from toolgate.upstream.pool.pool import ServerResponse

LIST_KINDS: Final[Mapping[str, ListKind]] = {method: kind for kind, method in LIST_METHODS.items()}
"""Methods that are served from memory."""
SERVER_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Methods that a server serves."""
Request = Coroutine[Any, Any, ServerResponse]
"""A request on its way to a server; awaiting it returns the server's response."""


class RequestDispatcher:
    """Serves lists, and sends requests to servers, for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tracer = gateway.tracer
        self.request = self._dispatch if self._tracer is None else self._dispatch_traced
        """Sends one of `SERVER_METHODS` to its server, without changing the message; returns the response."""

    async def list(
        self, responder: Responder, message: McpMessage, binding: CallerBinding, *, revision: Revision
    ) -> None:
        """Respond to one of `LIST_KINDS` with bytes that are encoded once per view."""
        gateway, kind = self._gateway, LIST_KINDS[message.method]
        is_limited = kind == "tools"
        view = binding.view(gateway) if is_limited else binding.calling_view(gateway)
        if not view.is_settled(kind):
            view = await gateway.wait_for_view(binding.caller, for_call=not is_limited)
        cursor = message.text("cursor")
        page = view.page(kind, revision, cursor, SERVER_INFO)
        if cursor is None:  # further pages belong to the same listing
            if kind == "tools":
                gateway.record_listing(view, SURFACE)
            else:
                gateway.scope_audit.record_offer(view, SURFACE)
        send_result(responder, message.id or b"null", page)

    def _dispatch(
        self, message: McpMessage, binding: CallerBinding, client: ClientChannel, session: str = ""
    ) -> Request:
        """Not itself a coroutine: that saves a plain call one frame."""
        view = binding.calling_view(self._gateway)
        # If the view has its tool, the call need not wait for servers that are not listed yet.
        if view.is_partial and not (message.method == "tools/call" and message.text("name") in view.routes):
            return self._dispatch_settled(message, binding, client, session)
        return self._send(view, message, client, session)

    async def _dispatch_settled(
        self, message: McpMessage, binding: CallerBinding, client: ClientChannel, session: str
    ) -> ServerResponse:
        view = await self._gateway.wait_for_view(binding.caller, for_call=True)
        if view.is_partial and message.method == "tools/call":
            name = message.text("name") or ""
            self._gateway.check_started(view, name, trace=self.trace(message, session))
        return await self._send(view, message, client, session)

    def _send(self, view: View, message: McpMessage, client: ClientChannel, session: str) -> Request:
        params = {**message.params}  # the gateway writes the server's own names into it
        trace = self.trace(message, session)
        if message.method != "tools/call":
            return self._gateway.fetch(view, message.method, params, trace=trace, client=client)
        name = message.text("name")
        if not name or len(name) > MAX_NAME_CHARS:
            raise InvalidParams("`name` must be a tool's name")
        return self._gateway.call(view, name, params, trace=trace, client=client)

    async def _dispatch_traced(
        self, message: McpMessage, binding: CallerBinding, client: ClientChannel, session: str = ""
    ) -> ServerResponse:
        """As `_dispatch`; records the outcome on the span of the request."""
        assert self._tracer is not None  # see `__init__`
        span = self._tracer.current
        if session:
            span.note("mcp.session.id", session)
        task_id = binding.caller.effective_task_id
        if task_id:
            span.note("toolgate.task_id", task_id)
        try:
            response = await self._dispatch(message, binding, client, session)
        except ToolgateError as exc:
            span.fail(exc.code)
            raise
        note_response(span, response, is_tool=message.method == "tools/call")
        return response

    def server_of(self, message: McpMessage, binding: CallerBinding) -> str:
        """The server that one of `SERVER_METHODS` would go to now. Raises as `request` does."""
        view = binding.calling_view(self._gateway)
        return self._gateway.server_of(view, message.method, message.params, trace=self.trace(message))

    def trace(self, message: McpMessage, session: str = "") -> Trace:
        """What identifies the message's call in the audit log."""
        trace_id = "" if self._tracer is None else self._tracer.trace_id
        return Trace(SURFACE, session, (message.id or b"null").decode(), message.round, trace_id)


class _MetaTrace(msgspec.Struct):
    traceparent: str = ""
    tracestate: str = ""


def read_meta_trace(message: McpMessage) -> Mapping[str, str]:
    """The trace context in the `_meta` of a request; empty if absent or invalid."""
    try:
        found = msgspec.json.decode(message.params.get("_meta", b"{}"), type=_MetaTrace)
    except UNREADABLE:
        return {}
    return {TRACEPARENT: found.traceparent, TRACESTATE: found.tracestate} if found.traceparent else {}


def trace_request(
    tracing: Tracer | None, message: McpMessage, principal_id: str
) -> AbstractContextManager[Span | None]:
    """A span for the block that serves a request; no span with tracing off, or for a notification."""
    if tracing is None or message.id is None:
        return nullcontext()
    method, target = message.method[:MAX_SPAN_NAME_CHARS], None
    if method == "tools/call":
        with suppress(InvalidParams):
            target = (message.text("name") or "")[:MAX_SPAN_NAME_CHARS] or None
    notes = span_attributes(method, target) | {
        "jsonrpc.request.id": message.id.decode().strip('"'),
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "toolgate.door": SURFACE,
        "toolgate.principal": principal_id,
    }
    return tracing.span(make_span_name(method, target), "server", notes)


MAX_BYTES: Final = 1_024
"""Of a client's capabilities that the gateway carries. Of a larger object, it carries only the names."""
_CARRIED: Final = ("elicitation", "roots", "sampling")
_NOT_CARRIED_EXTENSIONS: Final = frozenset({"io.modelcontextprotocol/tasks"})
"""A task continues at its server, and the gateway has no route back to it: no server learns that a client
supports tasks."""

_DECLARED: Final[Mapping[str, dict[str, bool]]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

_encode = msgspec.json.Encoder(order="deterministic").encode


def filter_client_capabilities(sent: bytes | msgspec.Raw | None) -> bytes:
    """The capabilities in `sent` that the gateway carries, as a JSON object. Invalid ones are left out."""
    members = _members(sent)
    carried = {name: members[name] for name in _CARRIED if _is_object(members.get(name))}
    extensions = {
        name: settings
        for name, settings in _members(members.get("extensions")).items()
        if name not in _NOT_CARRIED_EXTENSIONS and _is_object(settings)
    }
    if extensions:
        carried["extensions"] = msgspec.Raw(_encode(extensions))
    encoded = _encode(carried)
    if len(encoded) <= MAX_BYTES:
        return encoded
    return _encode({name: {} for name in carried if name != "extensions"})


def build_server_capabilities(view: View) -> dict[str, dict[str, bool]]:
    """The capabilities of a view's servers; all of them while some servers have not listed theirs."""
    features = FEATURES if view.is_partial else view.features
    declared = {name: settings for name, settings in _DECLARED.items() if name in {"tools", *features}}
    # In find mode the list is fixed. Others get the find tools when their scope grows too large.
    return declared | {"tools": {"listChanged": False}} if view.caller.mode == "find" else declared


def _members(raw: bytes | msgspec.Raw | None) -> Members:
    try:
        return decode_members(raw) if raw else {}
    except msgspec.DecodeError:
        return {}


def _is_object(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw)[:1] == b"{"


_SEVERITY: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LOG_LEVELS)}


class _LogMessage(msgspec.Struct):
    level: str = ""


def parse_log_level(level: str | None) -> str:
    """A log level that a client requests. Raises InvalidParams."""
    if level is None or level not in _SEVERITY:
        raise InvalidParams("`level` is not a log level", hint=f"use one of {', '.join(LOG_LEVELS)}")
    return level


def is_severe_enough(params: bytes, least: str) -> bool:
    """Whether a log message is at least as severe as `least`; empty: any level of the specification.

    Clients reject other levels.
    """
    try:
        level = msgspec.json.decode(params, type=_LogMessage).level
    except msgspec.DecodeError:
        return False
    return level in _SEVERITY and (not least or _SEVERITY[level] >= _SEVERITY[least])
