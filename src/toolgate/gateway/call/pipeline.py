"""The pipeline of one request to a server: quota, approval, audit, send.

Every request to a server runs through `CallPipeline.run`, whichever endpoint received it. Nothing else sends
requests to servers, and nothing is sent before its audit record is written.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toolgate.errors import ToolgateError
from toolgate.gateway.call import Admission, CallContext, CallStage, Denial
from toolgate.gateway.call.audit_trail import (
    FAILED,
    AuditTrail,
    CallOutcome,
    outcome_of_error,
    outcome_of_response,
)
from toolgate.gateway.cluster import Servers
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.token_counts import estimate_result
from toolgate.model.json_text import Members, encode_raw
from toolgate.telemetry import spans
from toolgate.upstream.connection.messages import is_tool_error, parse_error, parse_meta
from toolgate.upstream.pool.pool import CallOrigin, ServerResponse

TOOL_ERROR: Final = "tool_error"
"""The error type if a tool reports a failure (OpenTelemetry's semantic conventions of MCP)."""


def span_attributes(method: str, tool: str | None) -> dict[str, spans.AttributeValue]:
    """The attributes of an MCP request by the semantic conventions."""
    notes: dict[str, spans.AttributeValue] = {"mcp.method.name": method}
    if tool is not None:
        notes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return notes


def note_response(span: spans.Span, response: ServerResponse, *, is_tool: bool) -> None:
    """Record on the span whether a server's response is a failure, and nothing of its content."""
    members = response.rpc.members
    if members is None:
        span.note("rpc.response.status_code", str(parse_error(response.rpc.error).code))
        span.fail("server_error")
    elif is_tool and is_tool_error(members):
        span.fail(TOOL_ERROR)


@dataclass(frozen=True, slots=True)
class CallPipeline:
    """Admits, audits and sends requests."""

    servers: Servers
    audit: AuditTrail
    stages: Sequence[CallStage]
    """The stages, in the order in which they admit a call."""
    recheck: Callable[[Caller, Route], None]
    """Raises if policy denies a request after it waited for its server."""
    tracer: spans.Tracer | None

    def run(self, call: CallContext) -> Coroutine[Any, Any, ServerResponse]:
        """Send the request and return the server's response. Raises a `ToolgateError` on a denial."""
        # Not a coroutine itself, and most calls have neither quota nor approval: they skip the stages, and
        # with them one coroutine frame (2 µs).
        if call.route.approval is None and not call.view.quotas:
            return self._send(call)
        return self._admit_and_send(call)

    async def _admit_and_send(self, call: CallContext) -> ServerResponse:
        admissions: list[Admission] = []
        for stage in self.stages:
            if stage.applies_to(call):
                try:
                    admissions.append(await self._admit(call, stage))
                except BaseException:
                    for admission in admissions:
                        admission.release()
                    raise
        response = await self._send(call)
        tokens = estimate_result(response.rpc)
        for admission in admissions:
            admission.settle(tokens)
        return response

    async def _admit(self, call: CallContext, stage: CallStage) -> Admission:
        began_s = time.perf_counter()
        try:
            with spans.open_span(self.tracer, stage.name) as span:
                admitted = await stage.admit(call)
                if span is not None and isinstance(admitted, Denial):
                    span.fail(admitted.error.code)
        except (ToolgateError, asyncio.CancelledError) as exc:
            self.audit.record_unsent(call, time.perf_counter() - began_s, outcome_of_error(exc, call.trace))
            raise
        if isinstance(admitted, Denial):
            took_s, outcome = time.perf_counter() - began_s, CallOutcome("denied", admitted.error.code)
            self.audit.record_unsent(call, took_s, outcome, rule=(admitted.layer, admitted.rule))
            raise admitted.error
        return admitted

    async def _send(self, call: CallContext) -> ServerResponse:
        view, route, trace, params = call.view, call.route, call.trace, call.params
        # Invariant: the record is durable before the first byte leaves: a crash cannot hide a call (ADR 40).
        record = self.audit.record_start(call)
        began_s, outcome = time.perf_counter(), FAILED
        recheck = partial(self.recheck, view.caller, route)
        origin = CallOrigin(trace.session or view.session_key, recheck, view.caller.principal.id)
        try:
            if self.tracer is None:
                response = await self.servers.call(
                    route.server_id, call.method, params, tool=route.tool, client=call.client, origin=origin
                )
            else:
                response = await self._send_traced(call, origin, self.tracer)
            outcome = outcome_of_response(response, route.tool)
        except (ToolgateError, asyncio.CancelledError) as exc:
            outcome = outcome_of_error(exc, trace)
            raise
        finally:
            self.audit.record_end(call, record, time.perf_counter() - began_s, outcome)
        return response

    async def _send_traced(
        self, call: CallContext, origin: CallOrigin, tracer: spans.Tracer
    ) -> ServerResponse:
        """Send within a span. The server gets the span's context in `_meta`."""
        tool, meta = call.route.tool, call.params.get("_meta")
        target = None if tool is None else tool.ref.name
        notes = {"toolgate.server_id": call.route.server_id, **span_attributes(call.method, target)}
        with tracer.span(spans.make_span_name(call.method, target), "client", notes) as span:
            members: Members = {} if meta is None else parse_meta(meta)
            for name in (spans.TRACEPARENT, spans.TRACESTATE):
                members.pop(name, None)
            members |= {name: encode_raw(value) for name, value in tracer.carried().items()}
            params = {**call.params, "_meta": encode_raw(members)}
            response = await self.servers.call(
                call.route.server_id, call.method, params, tool=tool, client=call.client, origin=origin
            )
            note_response(span, response, is_tool=tool is not None)
        return response
