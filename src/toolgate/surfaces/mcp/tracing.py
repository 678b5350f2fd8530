"""Requests of MCP clients as spans. In their way only where requests are traced."""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidParams, ToolgateError
from toolgate.gateway.call.tracing import note_answer, notes_of
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.model.raw import UNREADABLE
from toolgate.surfaces.http.parsing import carried_by
from toolgate.surfaces.mcp.binding import DOOR, Binding
from toolgate.surfaces.mcp.dispatch import Methods
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.jsonrpc import Message
from toolgate.telemetry.spans import MAX_NAME_CHARS, TRACEPARENT, TRACESTATE, Span, Tracing, named
from toolgate.upstream.connection.contract import ClientSide
from toolgate.upstream.pool.pool import Answer

_ENDLESS: Final = "subscriptions/listen"
"""Answered by a stream that is open for as long as its client likes."""


class _Carried(msgspec.Struct):
    """A trace in a `_meta`."""

    traceparent: str = ""
    tracestate: str = ""


_decode_carried = msgspec.json.Decoder(_Carried).decode


def is_traced(message: Message) -> bool:
    """Whether it is a step that begins and ends: a notification does not."""
    return message.id is not None and message.method != _ENDLESS


def continued(tracing: Tracing, exchange: Exchange, message: Message) -> AbstractContextManager[None]:
    """The block belongs to the trace of the client, which is named in `_meta` or else by headers."""
    return tracing.continued(_carried(message) or carried_by(exchange.request))


def served(tracing: Tracing, message: Message, principal_id: str) -> AbstractContextManager[Span]:
    """The block answers a request."""
    method = message.method[:MAX_NAME_CHARS]
    target = _target(message)
    notes = notes_of(method, target) | {
        "jsonrpc.request.id": (message.id or b"").decode().strip('"'),
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "toolgate.door": DOOR,
        "toolgate.principal": principal_id,
    }
    return tracing.span(named(method, target), "server", notes)


def methods_of(gateway: Gateway) -> Methods:
    """What answers for both eras; where requests are traced, one that says what came of them."""
    return Methods(gateway) if gateway.tracing is None else _TracedMethods(gateway, gateway.tracing)


class _TracedMethods(Methods):
    """Notes on the span of a request what came of it."""

    def __init__(self, gateway: Gateway, tracing: Tracing) -> None:
        super().__init__(gateway)
        self._tracing = tracing

    def ask(
        self, message: Message, binding: Binding, *, client: ClientSide | None, session: str = ""
    ) -> Coroutine[Any, Any, Answer]:
        return self._ask_traced(message, binding, client=client, session=session)

    async def _ask_traced(
        self, message: Message, binding: Binding, *, client: ClientSide | None, session: str
    ) -> Answer:
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
        note_answer(span, answer, is_tool=message.method == "tools/call")
        return answer

    def trace(self, message: Message, session: str = "") -> Trace:
        return msgspec.structs.replace(super().trace(message, session), trace_id=self._tracing.trace_id)


def _carried(message: Message) -> Mapping[str, str]:
    """The trace in the `_meta` of a request; empty where there is none that can be read."""
    try:
        found = _decode_carried(message.params.get("_meta", b"{}"))
    except UNREADABLE:
        return {}
    return {TRACEPARENT: found.traceparent, TRACESTATE: found.tracestate} if found.traceparent else {}


def _target(message: Message) -> str | None:
    """The tool that is called, as its caller knows it."""
    if message.method != "tools/call":
        return None
    try:
        return (message.text("name") or "")[:MAX_NAME_CHARS] or None
    except InvalidParams:
        return None
