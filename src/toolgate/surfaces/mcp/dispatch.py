"""The methods that both kinds of revisions serve: lists from memory, and requests that go to a server.

They differ only in the shape of the response. Where requests are traced, each is a span. Nothing here waits
for a server unless the request needs one.
"""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
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
"""Methods that are served from memory."""
SERVER_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Methods that a server serves."""


class RequestDispatcher:
    """Serves lists, and sends requests to servers, for a bound caller."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

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
        if cursor is None:  # further pages are of the same list
            if kind == "tools":
                gateway.record_listing(view, SURFACE)
            else:
                gateway.scope_audit.record_offer(view, SURFACE)
        send_result(responder, message.id or b"null", page)

    def ask(
        self, message: McpMessage, binding: CallerBinding, *, client: ClientChannel | None, session: str = ""
    ) -> Coroutine[Any, Any, ServerResponse]:
        """The response of a server to one of `SERVER_METHODS`. Does not change the message.

        Not itself a coroutine: that saves a plain call one frame.
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
        """What identifies its call in the audit."""
        return Trace(SURFACE, session, (message.id or b"null").decode(), message.round)


def _is_known(view: View, message: McpMessage) -> bool:
    """Whether the view has its tool: then the call need not wait for servers that are not listed yet."""
    return message.method == "tools/call" and message.text("name") in view.routes


def send_server_response(
    responder: Responder, message: McpMessage, answer: ServerResponse, *, revision: Revision
) -> None:
    """Send what a server responded, in the form of `revision`. Raises InputRequired."""
    request_id, reply = message.id or b"null", answer.reply
    if reply.members is None:
        send_upstream_error(
            responder, request_id, reply.error or b"{}", method=message.method, stateless=revision == "modern"
        )
        return
    result = adapt_result(reply.take_members(), upstream=answer.era, client=revision, method=message.method)
    send_result(responder, request_id, result)


def send_failure(
    responder: Responder, message: McpMessage, exc: ToolgateError, *, revision: Revision
) -> bool:
    """Send a failed tool call as a result for the model. False, with nothing sent, for other failures."""
    failure = build_failed_result(exc) if message.method == "tools/call" else None
    if failure is None:
        return False
    result = adapt_result(failure, upstream="legacy", client=revision)
    send_result(responder, message.id or b"null", result)
    return True


_ENDLESS: Final = "subscriptions/listen"
"""Its response is a stream that stays open until the client closes it."""


class _MetaTrace(msgspec.Struct):
    """The trace context in a `_meta`."""

    traceparent: str = ""
    tracestate: str = ""


_decode_meta_trace = msgspec.json.Decoder(_MetaTrace).decode


def is_traced(message: McpMessage) -> bool:
    """Whether it has a begin and an end: a notification has no end."""
    return message.id is not None and message.method != _ENDLESS


def continue_trace(
    tracing: Tracer, exchange: McpExchange, message: McpMessage
) -> AbstractContextManager[None]:
    """Make the block part of the client's trace, which `_meta` names, or else headers."""
    return tracing.continued(_read_meta_trace(message) or read_trace_headers(exchange.request))


def trace_request(
    tracing: Tracer | None, message: McpMessage, principal_id: str
) -> AbstractContextManager[Span | None]:
    """A span for the block, which serves a request. Nothing where requests are not traced."""
    if tracing is None or message.id is None:
        return nullcontext()
    method = message.method[:MAX_SPAN_NAME_CHARS]
    target = _traced_tool(message)
    notes = span_attributes(method, target) | {
        "jsonrpc.request.id": message.id.decode().strip('"'),
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "toolgate.door": SURFACE,
        "toolgate.principal": principal_id,
    }
    return tracing.span(make_span_name(method, target), "server", notes)


def make_dispatcher(gateway: Gateway) -> RequestDispatcher:
    """The dispatcher for all revisions."""
    tracer = gateway.tracer
    return RequestDispatcher(gateway) if tracer is None else _TracedDispatcher(gateway, tracer)


class _TracedDispatcher(RequestDispatcher):
    """Records the outcome of a request on its span."""

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


def _read_meta_trace(message: McpMessage) -> Mapping[str, str]:
    """The trace in the `_meta` of a request; empty if it has none that is valid."""
    try:
        found = _decode_meta_trace(message.params.get("_meta", b"{}"))
    except UNREADABLE:
        return {}
    return {TRACEPARENT: found.traceparent, TRACESTATE: found.tracestate} if found.traceparent else {}


def _traced_tool(message: McpMessage) -> str | None:
    """The tool that is called, by its name in the view."""
    if message.method != "tools/call":
        return None
    try:
        return (message.text("name") or "")[:MAX_SPAN_NAME_CHARS] or None
    except InvalidParams:
        return None
