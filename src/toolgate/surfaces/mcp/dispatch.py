"""The methods both eras serve, the same but for the shape of the answer: lists, and what goes to a server.

Requests of MCP clients as spans. In their way only where requests are traced.
"""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from toolgate.catalog.encoding import adapt_result
from toolgate.errors import InvalidParams, ToolgateError
from toolgate.gateway.call.tracing import note_response, span_attributes
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LIST_METHODS
from toolgate.model.tools import ListKind, Revision
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.http.parsing import read_trace_headers
from toolgate.surfaces.mcp.binding import SURFACE, CallerBinding
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import MAX_NAME_CHARS, McpMessage
from toolgate.surfaces.mcp.responses import SERVER_INFO, build_failed_result, send_result, send_upstream_error
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
"""Answered from memory."""
SERVER_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Answered by a server."""


class RequestDispatcher:
    """Lists and asks servers for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list(
        self, responder: Responder, message: McpMessage, binding: CallerBinding, *, era: Revision
    ) -> None:
        """Answer one of `LIST_KINDS` from bytes encoded once per view."""
        gateway, kind = self._gateway, LIST_KINDS[message.method]
        is_limited = kind == "tools"
        view = binding.view(gateway) if is_limited else binding.calling_view(gateway)
        if not view.is_settled(kind):
            view = await gateway.wait_for_view(binding.caller, for_call=not is_limited)
        cursor = message.text("cursor")
        page = view.page(kind, era, cursor, SERVER_INFO)
        if cursor is None:  # further pages are of the same list
            self._note(view, kind)
        send_result(responder, message.id or b"null", page)

    def _note(self, view: View, kind: ListKind) -> None:
        if kind == "tools":
            self._gateway.record_listing(view, SURFACE)
        else:
            self._gateway.scope_audit.record_offer(view, SURFACE)

    def ask(
        self, message: McpMessage, binding: CallerBinding, *, client: ClientChannel | None, session: str = ""
    ) -> Coroutine[Any, Any, ServerResponse]:
        """What a server answers to one of `SERVER_METHODS`. The message stays as it came.

        Not a coroutine of its own, as a plain call is worth one frame less on the way to its server.
        """
        view = binding.calling_view(self._gateway)
        if view.is_partial and not _is_known(view, message):
            return self._ask_settled(message, binding, client=client, session=session)
        return self._ask(view, message, client=client, session=session)

    async def _ask_settled(
        self, message: McpMessage, binding: CallerBinding, *, client: ClientChannel | None, session: str
    ) -> ServerResponse:
        view = await self._gateway.wait_for_view(binding.caller, for_call=True)
        if view.is_partial and message.method == "tools/call":
            name = message.text("name") or ""
            self._gateway.check_started(view, name, trace=self.trace(message, session))
        return await self._ask(view, message, client=client, session=session)

    def _ask(
        self, view: View, message: McpMessage, *, client: ClientChannel | None, session: str
    ) -> Coroutine[Any, Any, ServerResponse]:
        params = {**message.params}  # the gateway writes the server's own names into it
        trace = self.trace(message, session)
        if message.method != "tools/call":
            return self._gateway.fetch(view, message.method, params, trace=trace, client=client)
        name = message.text("name")
        if not name or len(name) > MAX_NAME_CHARS:
            raise InvalidParams("`name` must be a tool's name")
        return self._gateway.call(view, name, params, trace=trace, client=client)

    def server_of(self, message: McpMessage, binding: CallerBinding) -> str:
        """Where one of `SERVER_METHODS` would go now. Raises as `ask` does."""
        view = binding.calling_view(self._gateway)
        return self._gateway.server_of(view, message.method, message.params, trace=self.trace(message))

    def trace(self, message: McpMessage, session: str = "") -> Trace:
        """By which its call is found in the audit."""
        return Trace(SURFACE, session, (message.id or b"null").decode(), message.round)


def _is_known(view: View, message: McpMessage) -> bool:
    """Whether its tool is there: then it need not wait for servers that are still to be listed."""
    return message.method == "tools/call" and message.text("name") in view.routes


def send_server_response(
    responder: Responder, message: McpMessage, answer: ServerResponse, *, era: Revision
) -> None:
    """What a server answered, as a client of `era` takes it. Raises InputNeeded where it asks first."""
    request_id, reply = message.id or b"null", answer.reply
    if reply.members is None:
        send_upstream_error(
            responder, request_id, reply.error or b"{}", method=message.method, modern=era == "modern"
        )
        return
    result = adapt_result(reply.take_members(), upstream=answer.era, client=era, method=message.method)
    send_result(responder, request_id, result)


def send_failure(responder: Responder, message: McpMessage, exc: ToolgateError, *, era: Revision) -> bool:
    """A failure of a tool's call, as a result that a model can act on. False for others: nothing is sent."""
    failure = build_failed_result(exc) if message.method == "tools/call" else None
    if failure is None:
        return False
    result = adapt_result(failure, upstream="legacy", client=era)
    send_result(responder, message.id or b"null", result)
    return True


_ENDLESS: Final = "subscriptions/listen"
"""Answered by a stream that is open for as long as its client likes."""


class _Carried(msgspec.Struct):
    """A trace in a `_meta`."""

    traceparent: str = ""
    tracestate: str = ""


_decode_carried = msgspec.json.Decoder(_Carried).decode


def is_traced(message: McpMessage) -> bool:
    """Whether it is a step that begins and ends: a notification does not."""
    return message.id is not None and message.method != _ENDLESS


def continue_trace(
    tracing: Tracer, exchange: McpExchange, message: McpMessage
) -> AbstractContextManager[None]:
    """The block belongs to the trace of the client, which is named in `_meta` or else by headers."""
    return tracing.continued(_carried(message) or read_trace_headers(exchange.request))


def trace_request(tracing: Tracer, message: McpMessage, principal_id: str) -> AbstractContextManager[Span]:
    """The block answers a request."""
    method = message.method[:MAX_SPAN_NAME_CHARS]
    target = _traced_tool(message)
    notes = span_attributes(method, target) | {
        "jsonrpc.request.id": (message.id or b"").decode().strip('"'),
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "toolgate.door": SURFACE,
        "toolgate.principal": principal_id,
    }
    return tracing.span(make_span_name(method, target), "server", notes)


def make_dispatcher(gateway: Gateway) -> RequestDispatcher:
    """What answers for both eras; where requests are traced, one that says what came of them."""
    return (
        RequestDispatcher(gateway) if gateway.tracer is None else _TracedDispatcher(gateway, gateway.tracer)
    )


class _TracedDispatcher(RequestDispatcher):
    """Notes on the span of a request what came of it."""

    def __init__(self, gateway: Gateway, tracing: Tracer) -> None:
        super().__init__(gateway)
        self._tracing = tracing

    def ask(
        self, message: McpMessage, binding: CallerBinding, *, client: ClientChannel | None, session: str = ""
    ) -> Coroutine[Any, Any, ServerResponse]:
        return self._ask_traced(message, binding, client=client, session=session)

    async def _ask_traced(
        self, message: McpMessage, binding: CallerBinding, *, client: ClientChannel | None, session: str
    ) -> ServerResponse:
        span = self._tracing.current
        if session:
            span.note("mcp.session.id", session)
        task_id = binding.caller.effective_task_id
        if task_id:
            span.note("toolgate.task_id", task_id)
        try:
            answer = await super().ask(message, binding, client=client, session=session)
        except ToolgateError as exc:
            span.fail(exc.code)
            raise
        note_response(span, answer, is_tool=message.method == "tools/call")
        return answer

    def trace(self, message: McpMessage, session: str = "") -> Trace:
        return msgspec.structs.replace(super().trace(message, session), trace_id=self._tracing.trace_id)


def _carried(message: McpMessage) -> Mapping[str, str]:
    """The trace in the `_meta` of a request; empty where there is none that can be read."""
    try:
        found = _decode_carried(message.params.get("_meta", b"{}"))
    except UNREADABLE:
        return {}
    return {TRACEPARENT: found.traceparent, TRACESTATE: found.tracestate} if found.traceparent else {}


def _traced_tool(message: McpMessage) -> str | None:
    """The tool that is called, as its caller knows it."""
    if message.method != "tools/call":
        return None
    try:
        return (message.text("name") or "")[:MAX_SPAN_NAME_CHARS] or None
    except InvalidParams:
        return None
